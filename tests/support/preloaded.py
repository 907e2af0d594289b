"""`dlq` as a process of its own, forked from one that has imported everything already.

Most of what a short command costs is Python's imports, and the tests run a thousand of them. A fork runs the
same code with the arguments, folder, environment and streams of the caller, and can be killed like any other
process; only the imports are shared. What depends on the start of the interpreter starts what is installed.
"""

import atexit
import gc
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn
from uuid import uuid4

import typer
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.waiting import STARTUP

ROOT = Path(__file__).parents[2]
INSTALLED = str(Path(sys.executable).with_name("dlq"))
_OF_THE_START = ("PYTHON", "LC_", "LANG")
"""Variables that the interpreter reads when it starts."""


class Running:
    """A `dlq` that was started, by the methods of `subprocess.Popen` with text as its output."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        stdin: str,
        holding: Sequence[int],
        terminal: int | None,
        module: str,
    ) -> None:
        self.args = [INSTALLED, *words]
        self.returncode: int | None = None
        self.memory = 0
        """Bytes that it had at most, once it has ended."""
        self._open = ExitStack()
        streams = [self._open.enter_context(tempfile.TemporaryFile()) for _ in range(3)]  # noqa: SIM115
        fed, *self._printed = streams
        fed.write(stdin.encode())
        fed.seek(0)
        self._told = self._open.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        self._told.connect(_server())
        request = {
            "words": words, "folder": str(folder), "environment": dict(environment), "holding": holding,
            "module": module,
        }  # fmt: skip
        given = [stream.fileno() for stream in streams] if terminal is None else [terminal] * 3
        socket.send_fds(self._told, [json.dumps(request).encode()], given)
        self.pid = int(self._told.recv(16))

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; raises TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it printed until its end, to standard output and to standard error; raises TimeoutExpired."""
        self.wait(timeout)
        with self._open:
            out, err = map(_text, self._printed)
        return out, err

    def send_signal(self, number: int) -> None:
        """As `kill -NUMBER` does."""
        with suppress(ProcessLookupError):  # it has ended, and that is under way
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """kill -15."""
        self.send_signal(signal.SIGTERM)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            self.returncode, self.memory = map(int, self._told.recv(32).split())
        return self.returncode


def start(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    dies_holding: Sequence[int] = (),
    terminal: int | None = None,
    module: str = "dlq.cli.app",
) -> Running:
    """`dlq WORDS...` in a folder, beside this process, or on an open `terminal`. `dies_holding`: see
    `dying.holding`. The `main` of another `module` may take its place."""
    given = os.environ if environment is None else environment
    return Running(words, folder, given, stdin, dies_holding, terminal, module)


def run(
    words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    """`dlq WORDS...` in a folder to its end, with what it printed."""
    given = dict(os.environ if environment is None else environment)
    of_the_start = (name for name in {*given, *os.environ} if name.startswith(_OF_THE_START))
    if any(given.get(name) != os.environ.get(name) for name in of_the_start):
        command = [INSTALLED, *words]
        return subprocess.run(
            command, cwd=folder, env=given, input=stdin, capture_output=True, text=True, check=False
        )
    running = start(words, folder, given, stdin)
    printed = running.communicate()
    return subprocess.CompletedProcess(running.args, running.wait(), *printed)


def analyze(archive: str) -> None:
    """`dlq analyze` of an archive on this disk, without a configuration."""
    done = run(["analyze"], Path(archive), {**os.environ, "DLQ_ARCHIVE": archive, "XDG_CONFIG_HOME": archive})
    assert done.returncode == 0, done.stderr


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode().replace("\r\n", "\n")


@cache
def _server() -> str:
    """Where the process that waits is reached; the workers of a run share one, which ends with the run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    folder = Path(tempfile.gettempdir(), f"dlq-preloaded-{run or uuid4().hex}")
    place = folder / "socket"
    with suppress(FileExistsError):  # another worker was first
        folder.mkdir(0o700)
        with os.fdopen(os.pidfd_open(os.getppid() if run else os.getpid())) as ends_with:
            subprocess.Popen([sys.executable, __file__, str(place)], stdin=ends_with)
    deadline = time.monotonic() + STARTUP
    while not place.exists():
        assert time.monotonic() < deadline, "the process that imports dlq has not begun"
        time.sleep(0.02)
    return str(place)


def _import_everything() -> None:
    for package in (path.parent for path in ROOT.glob("*/__init__.py")):
        for module in sorted(package.rglob("*.py")):
            if module.name != "__main__.py":
                name = module.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__")
                import_module(f"dlq.{name.replace('/', '.')}")
    _run_a_command()
    dict(import_module("dlq.cli.app").command_line().commands)
    gc.freeze()


def _run_a_command() -> None:
    """The first parameter of the first command makes Typer import what takes longer than most commands."""
    any_command = typer.Typer()
    any_command.command()(_takes_a_word)
    CliRunner().invoke(any_command)


def _takes_a_word(word: str = "") -> None:
    """Nothing to do."""


def _serve(place: str) -> None:
    """Fork a `dlq` for each that asks, until the process that standard input stands for is gone."""
    _import_everything()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{place}.new")
        listener.listen()
        os.rename(f"{place}.new", place)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            asking, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(asking)
            asking.close()
    shutil.rmtree(Path(place).parent)


def _answer(asking: socket.socket) -> NoReturn:
    """Run what is asked for in a process of its own; say which it is, and how it ended."""
    request, streams, _, _ = socket.recv_fds(asking, 2**20, 3)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    running = os.fork()
    if running == 0:
        asking.close()
        _become(json.loads(request), streams)
    for stream in streams:
        os.close(stream)
    asking.send(str(running).encode())
    _, status, used = os.wait4(running, 0)
    asking.send(b"%d %d" % (os.waitstatus_to_exitcode(status), used.ru_maxrss * 1024))
    os._exit(0)


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if os.isatty(1):  # those of the interpreter's start believe that they can seek
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = [INSTALLED, *request["words"]]
    if request["holding"]:
        import_module("dying").holding(*request["holding"])
    main = import_module(request["module"]).main
    code: object = 1
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    threading._shutdown()
    atexit._run_exitfuncs()
    for printed in (sys.stdout, sys.stderr):
        printed.flush()
    # The rest of an exit, to free every module, would cost more than most commands.
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve(sys.argv[1])
