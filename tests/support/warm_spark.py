"""A Java virtual machine that a run of the tests lends to one `dlq` after the other, as a plugin of pytest.

In a JVM that has done an analysis the next one takes a quarter of the processor time. A forked `dlq`
(`preloaded`) that would start one with the usual options gets it, when no other has it. A SparkContext that
was stopped leaves nothing behind; a JVM whose `dlq` did not say so is ended, and the next one is new. All
others start their own: what has options of its own, a cluster or another Java, and the installed command.
"""

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest
    from pyspark import SparkConf

_PLACE = "DLQ_TEST_WARM_SPARK"
"""The variable that says where the process that lends is reached."""
_OF_JAVA = (
    "JAVA", "_JAVA", "JDK", "SPARK_HOME", "SPARK_CONF", "SPARK_LOCAL", "PYSPARK_SUBMIT", "HADOOP", "HOME",
    "PATH", "TMPDIR", "TZ",
)  # fmt: skip
"""Variables that a JVM or Spark reads when it starts."""
_CLASS_DATA = ("-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit=")
_STOPPED = b"stopped"


def pytest_configure(config: "pytest.Config") -> None:
    """Start the process that lends to all workers; it ends with this one."""
    if hasattr(config, "workerinput"):
        return
    folder = tempfile.TemporaryDirectory(prefix="dlq-spark-")
    os.environ[_PLACE] = f"{folder.name}/socket"
    with _socket() as listener:
        listener.bind(os.environ[_PLACE])
        listener.listen()
        command = [sys.executable, __file__, str(listener.fileno())]
        lender = subprocess.Popen(
            command, stdin=subprocess.PIPE, cwd=folder.name, pass_fds=[listener.fileno()]
        )
    config.add_cleanup(folder.cleanup)
    config.add_cleanup(lender.wait)
    config.add_cleanup(lender.kill)


def borrow() -> None:
    """From now on PySpark in this process, and in all that are forked from it, takes a JVM that is lent."""
    place, java_gateway = os.environ[_PLACE], import_module("pyspark.java_gateway")
    launch = java_gateway.launch_gateway

    def borrowed(conf: "SparkConf", streams: dict[str, Any]) -> Any:
        lender = _socket()
        lender.connect(place)
        lender.send(json.dumps({"conf": dict(conf.getAll()), "environment": _of_java()}).encode())
        lent = lender.recv(1024)
        if not lent:
            return launch(conf, streams)
        atexit.register(_give_back, lender)
        os.environ.update(json.loads(lent))
        return launch()

    java_gateway.launch_gateway = borrowed


def _give_back(lender: socket.socket) -> None:
    from pyspark import SparkContext

    if SparkContext._active_spark_context is None:
        lender.send(_STOPPED)


def _of_java() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_OF_JAVA)}


def _is_usual(conf: dict[str, str]) -> bool:
    """Whether a small analysis on this machine would ask for these options."""
    from dlq.analyzers.spark.session import configuration
    from dlq.core.settings import Spark

    usual = configuration(Spark(), few=True)
    return {name: _but_class_data(value) for name, value in conf.items()} == {
        name: _but_class_data(usual.get(name, "")) for name in conf
    }


def _but_class_data(options: str) -> list[str]:
    return [word for word in options.split() if not word.startswith(_CLASS_DATA)]


class Jvm:
    """One that waits for Python to connect; it ends with this process."""

    def __init__(self, conf: dict[str, str], log: IO[bytes]) -> None:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        options = SparkConf(loadDefaults=False).setAll(list(conf.items()))
        gateway: Any = launch_gateway(options, {"stdout": log, "stderr": log})
        self._process, reached = gateway.proc, gateway.gateway_parameters
        self.reached = {
            "PYSPARK_GATEWAY_PORT": str(reached.port), "PYSPARK_GATEWAY_SECRET": reached.auth_token,
        }  # fmt: skip
        """By PySpark's own variables."""
        gateway.close()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()


def _socket(fd: int | None = None) -> socket.socket:
    """Whose other end is told when a process is gone, however it ended."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=fd)


def _has_stopped(borrower: socket.socket) -> bool:
    """Its SparkContext, by its own word; one that was killed says nothing."""
    try:
        return borrower.recv(len(_STOPPED)) == _STOPPED
    except ConnectionError:
        return False


def _lend(listener: socket.socket, log: IO[bytes]) -> None:
    """A JVM to each `dlq` that asks, until the process that started this one is gone."""
    free: list[Jvm] = []
    lent: dict[socket.socket, Jvm] = {}
    # While it is lent others wait: that costs less than one more start.
    while sys.stdin not in (ready := select.select([sys.stdin, *(lent or [listener])], [], [])[0]):
        for back in lent.keys() & ready:
            with back:
                jvm = lent.pop(back)
                free.append(jvm) if _has_stopped(back) else jvm.kill()
        if listener in ready:
            asking, _ = listener.accept()
            asked = json.loads(asking.recv(2**16))
            if asked["environment"] != _of_java() or not _is_usual(asked["conf"]):
                asking.close()
                continue
            lent[asking] = free.pop() if free else Jvm(asked["conf"], log)
            with suppress(ConnectionError):  # killed meanwhile, which the next round sees
                asking.send(json.dumps(lent[asking].reached).encode())


if __name__ == "__main__":
    with _socket(int(sys.argv[1])) as listener, tempfile.TemporaryFile() as log:
        _lend(listener, log)
