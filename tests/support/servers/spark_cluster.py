"""A Spark standalone cluster for tests, of the installed PySpark: a master and two workers on 127.0.0.1."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pyspark
from support.jvm import QUICK
from support.ports import free_ports
from support.waiting import PATIENCE, STARTUP

_CLASS = str(Path(str(pyspark.__file__)).with_name("bin") / "spark-class")
_PACKAGE = "org.apache.spark.deploy"
HOST = "127.0.0.1"


class SparkCluster:
    """`start`, then `master` is what `--master` takes; `stop` ends all three."""

    def __init__(self, workers: int = 2) -> None:
        self._workers = workers
        [self._port] = free_ports(1)
        self._folder = Path(tempfile.mkdtemp(prefix="spark-"))
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def start(self) -> None:
        places = ["--host", HOST, "--port", str(self._port), "--webui-port", "0"]
        self._run(f"{_PACKAGE}.master.Master", *places)
        self._wait("I have been elected leader", 1)
        for number in range(self._workers):
            folder = str(self._folder / f"work{number}")
            limits = ["--cores", "1", "--memory", "1g", "--work-dir", folder, "--webui-port", "0"]
            self._run(f"{_PACKAGE}.worker.Worker", "--host", HOST, *limits, self.master)
        self._wait("Registering worker", self._workers)

    def _run(self, *words: str) -> None:
        given = {
            **os.environ, "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK),
        }  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._processes.append(
                subprocess.Popen([_CLASS, *words], env=given, stdout=log, stderr=log, start_new_session=True)
            )

    def _wait(self, text: str, times: int) -> None:
        deadline = time.monotonic() + STARTUP
        while (self._folder / "log").read_text(errors="replace").count(text) < times:
            assert time.monotonic() < deadline, (self._folder / "log").read_text(errors="replace")[-2000:]
            time.sleep(0.1)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(PATIENCE)
        shutil.rmtree(self._folder, ignore_errors=True)
