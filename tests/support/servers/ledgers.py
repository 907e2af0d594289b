"""Private PostgreSQL, MariaDB and Redis servers: `start`, `kill` (-9), `stop`."""

import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import redis
import sqlalchemy as sa
from support.ports import free_ports
from support.waiting import STARTUP, eventually, is_dead


def postgres_folder() -> Path | None:
    """Where Debian keeps the newest PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return found[-1] if found else None


class Server(ABC):
    """A server in a folder of its own."""

    kind = ""
    user = ""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.kind}-"))
        [self.port] = free_ports(1)
        self.process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(self.folder, self.user)
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Make the data folder."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What runs the server."""

    @property
    @abstractmethod
    def url(self) -> str:
        """What `[ledger] url` takes."""

    def as_user(self, *words: str) -> list[str]:
        """Database servers refuse to run as root."""
        if os.geteuid() != 0:
            return list(words)
        return ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", *words]

    def run(self, *words: str) -> None:
        subprocess.run(self.as_user(*words), check=True, capture_output=True, cwd="/")

    def start(self) -> None:
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            self.as_user(*self.command()), stdout=quiet, stderr=quiet, cwd="/", start_new_session=True
        )
        eventually(self._has_started, STARTUP)

    def _has_started(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"{self.kind} ended"
        return self._answers()

    def _answers(self) -> bool:
        url = self.url.replace("postgresql:", "postgresql+psycopg:").replace("mysql:", "mysql+pymysql:")
        engine = sa.create_engine(url)
        try:
            with engine.connect():
                return True
        except sa.exc.OperationalError:
            return False
        finally:
            engine.dispose()

    def kill(self) -> None:
        """As a power cut would. Until the last of its workers has ended, each of them the leader of a group,
        PostgreSQL does not start again."""
        assert self.process is not None
        server = psutil.Process(self.process.pid)
        server.suspend()  # so that it starts no more of them
        workers = server.children(recursive=True)
        for process in (server, *workers):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        eventually(lambda: all(is_dead(worker.pid) for worker in workers))

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()  # asked to end, PostgreSQL waits for a client that a test has left behind
        shutil.rmtree(self.folder, ignore_errors=True)


class Postgres(Server):
    """PostgreSQL from Debian's package."""

    kind, user = "postgres", "postgres"

    def prepare(self) -> None:
        self.run(str(self._bin("initdb")), "-D", str(self.folder / "data"), "-A", "trust", "-U", "dlq", "-N")

    def command(self) -> Sequence[str]:
        options = ["-p", str(self.port), "-k", str(self.folder), "-c", "listen_addresses=127.0.0.1"]
        return [str(self._bin("postgres")), "-D", str(self.folder / "data"), *options]

    @property
    def url(self) -> str:
        return f"postgresql://dlq@127.0.0.1:{self.port}/postgres"

    def _bin(self, name: str) -> Path:
        folder = postgres_folder()
        assert folder is not None
        return folder / name


class MariaDb(Server):
    """MariaDB from Debian's package; it speaks MySQL's protocol."""

    kind, user = "mariadb", "mysql"

    def prepare(self) -> None:
        setting = "--auth-root-authentication-method=normal"
        self.run("mariadb-install-db", "--no-defaults", f"--datadir={self.folder}/data", setting)

    def command(self) -> Sequence[str]:
        places = [
            f"--datadir={self.folder}/data", f"--socket={self.folder}/s", f"--pid-file={self.folder}/pid",
        ]  # fmt: skip
        return ["mariadbd", "--no-defaults", *places, f"--port={self.port}", "--bind-address=127.0.0.1"]

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/test"


class Redis(Server):
    """Redis from Debian's package, by default with a file that each write reaches before its answer."""

    kind, user = "redis", "redis"

    def __init__(self, *options: str) -> None:
        self.options = options or ("--appendonly", "yes", "--appendfsync", "always")
        super().__init__()

    def prepare(self) -> None:
        """Redis needs no more than the folder."""

    def command(self) -> Sequence[str]:
        places = ["--dir", str(self.folder), "--bind", "127.0.0.1", "--port", str(self.port)]
        return ["redis-server", *places, "--save", "", *self.options]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


SERVERS: dict[str, Callable[[], Server]] = {"postgres": Postgres, "mariadb": MariaDb}
"""Those that keep ledgers."""


def why_missing(kind: str) -> str | None:
    """Why there is no server of this kind on this machine; None when there is one."""
    programs = {"mariadb": "mariadbd", "redis": "redis-server"}
    is_there = postgres_folder() if kind == "postgres" else shutil.which(programs[kind])
    return None if is_there else f"{kind} is not installed"
