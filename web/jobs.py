"""Commands that outlive a request: each is a process of its own, with its output in files of its own.

The server that began one may be killed: the process goes on under the same locks as one from a shell, and the
next server finds it by these files. What it does to letters is told by the ledger and the archive alone.
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dlq.core.clock import iso, now
from dlq.core.errors import UsageError
from dlq.replay.actor import hand_over

KEPT = 200
_SHOWN_BYTES = 256 * 1024
RUN = """\
ulimit -S -d "$(ulimit -H -d)"
"$@" >"$0.out" 2>"$0.err"; echo $? >"$0.code.new"; mv "$0.code.new" "$0.code"
"""
"""The server's limit of memory is not the command's. Leaves the exit code where the next server finds it.
Its words are arguments, never part of the script."""


@dataclass(frozen=True)
class Job:
    """One command that was begun by the page."""

    job: str
    words: tuple[str, ...]
    """As they are typed, without the configuration."""
    about: str
    """What it works on: a plan, `pull`, `analyze`."""
    by: str
    begun_at: str
    pid: int
    started: str
    """When the kernel started that process, so that another with its number is not taken for it."""


class Jobs:
    """The commands that were begun for one archive on this host, by this server and those before it."""

    def __init__(self, archive: str, config: str | None) -> None:
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        self.folder = Path(home, "dlq", "serve", sha256(archive.encode()).hexdigest()[:16])
        self._config = config
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self, words: Sequence[str], about: str, by: str) -> Job:
        """Begin a command. Raises UsageError where its output can't be kept."""
        self._reap()
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return self._start(words, about, by)
        except OSError as error:
            what = f"cannot start `dlq {words[0]}`, whose output goes to {self.folder}"
            raise UsageError(f"{what}: {error.strerror}; check the host") from error

    def _start(self, words: Sequence[str], about: str, by: str) -> Job:
        name = f"{iso(now()).replace(':', '').replace('-', '')[:15]}-{secrets.token_hex(4)}"
        base = self.folder / name
        config = ["--config", self._config] if self._config else []
        command = [sys.executable, "-P", "-m", "dlq.cli", *config, "--no-input", "-o", "json", *words]
        os.close(os.open(f"{base}.out", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.close(os.open(f"{base}.err", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with hand_over(by) as name_of_whom:
            child = subprocess.Popen(  # noqa: S603 (words are arguments, made by us)
                ["/bin/sh", "-c", RUN, str(base), *command],
                stdin=name_of_whom.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._children.append(child)
        job = Job(name, tuple(words), about, by, iso(now()), child.pid, read_start(child.pid))
        with open(os.open(f"{base}.json", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            json.dump(asdict(job), file)
        return job

    def list_all(self) -> list[Job]:
        """Return the newest first; beyond a number those are removed that are over."""
        self._reap()
        try:
            names = sorted((path.name for path in self.folder.glob("*.json")), reverse=True)
        except OSError:
            return []
        found = []
        for at, name in enumerate(name.removesuffix(".json") for name in names):
            job = self._read(name)
            if job and (at < KEPT or self.is_running(job)):
                found.append(job)
            elif at >= KEPT:
                self._remove(name)
        return found

    def find(self, name: str) -> Job:
        """Return one of them. Raises UsageError."""
        known = {job.job: job for job in self.list_all()}
        if name not in known:
            raise UsageError(f"no command {name!r} was begun here, or it is long over; start it again")
        return known[name]

    def list_running(self, about: str | None = None) -> list[Job]:
        """Return jobs whose process is alive, of all or about one plan."""
        return [job for job in self.list_all() if about in (None, job.about) and self.is_running(job)]

    def is_running(self, job: Job) -> bool:
        """Return whether its process is alive."""
        return self.code(job) is None and bool(job.started) and read_start(job.pid) == job.started

    def code(self, job: Job) -> int | None:
        """Return its exit code; None while it runs, and when it was killed."""
        with suppress(OSError, ValueError):
            return int((self.folder / f"{job.job}.code").read_text())
        return None

    def output(self, job: Job) -> tuple[str, str]:
        """Return the end of its standard output and of its errors."""
        return self._tail(job, "out"), self._tail(job, "err")

    def result(self, job: Job) -> Mapping[str, Any]:
        """Return what it printed, where that is one JSON object."""
        with suppress(ValueError):
            found = json.loads(self._tail(job, "out"))
            return found if isinstance(found, dict) else {}
        return {}

    def _tail(self, job: Job, part: str) -> str:
        with suppress(OSError), (self.folder / f"{job.job}.{part}").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _SHOWN_BYTES))
            return file.read(_SHOWN_BYTES).decode("utf-8", "replace")
        return ""

    def _read(self, name: str) -> Job | None:
        with suppress(OSError, ValueError, TypeError):
            found = json.loads((self.folder / f"{name}.json").read_text())
            return Job(**{**found, "words": tuple(found["words"])})
        return None

    def _remove(self, name: str) -> None:
        for part in ("json", "out", "err", "code"):
            with suppress(OSError):
                (self.folder / f"{name}.{part}").unlink()

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def read_start(pid: int) -> str:
    """Return the kernel's time of a process' start (proc(5), field 22); nothing where there is no such."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""
