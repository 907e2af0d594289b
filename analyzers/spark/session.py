"""One quiet Spark session: local by default, any cluster by `--master`.

The JVM writes its log and warnings to a nameless temporary file, never to the terminal; its end is
shown only when the JVM does not come up.
"""

import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dlq.analyzers.spark import shipping
from dlq.archive.storage import scratch
from dlq.core.errors import UsageError
from dlq.core.settings import Spark

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_PYSPARK = "install PySpark with: pip install 'dlq[spark]'"
_MOST_MIB = 1800
"""Heap of a local JVM. Letters are in Python workers; beyond this, what Spark keeps goes to disk."""
_BASE: Mapping[str, str] = {
    "spark.app.name": "dlq analyze",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # With it the workers that classify by Arrow would be others than those that look between letters.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Letters are hostile: a cast that fails gives null, it does not end the analysis.
    "spark.sql.ansi.enabled": "false",
    # The other engine has no size of a list that is not there.
    "spark.sql.legacy.sizeOfNull": "false",
    # A letter that was imported under a second source is there twice, with the same signs of duplicates.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # HotSpot compiles no method above 8000 bytes: better many small ones than one that is interpreted.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Workers are `python -m`, which imports from the current folder before all others.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
# Java's pattern matcher recurses; an overflow in a task would end the whole JVM.
_DEEP_STACKS = "-Xss16m"
_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL: Mapping[str, str] = {
    # The rules run in Python: what is left for the JVM never repays what its second compiler costs.
    _OPTIONS: f"-XX:TieredStopAtLevel=1 -XX:+UseParallelGC {_DEEP_STACKS}",
    "spark.driver.host": "127.0.0.1",
    # Every user of the machine can reach the driver's ports. Spark makes the secret, inside its process.
    "spark.authenticate": "true",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}
_CLUSTER: Mapping[str, str] = {_OPTIONS: _DEEP_STACKS, "spark.executor.extraJavaOptions": _DEEP_STACKS}
_OF_FAULTS = ("ERROR", "Error:", "Exception", "Error occurred")
_WITHOUT_REASON = (
    "Error: Could not create the Java Virtual Machine",
    "Error: A fatal exception has occurred",
    "Error occurred during initialization of",
)
"""Lines of a JVM's beside which another one says why."""
# What the JVM needs before it starts goes into its argument list, which every user of the machine
# can read; all the rest is handed over inside the process.
_BEFORE_START = ("spark.driver.memory", "spark.driver.extra", "spark.jars", "spark.submit.")


def configuration(settings: Spark, master: str | None = None) -> dict[str, str]:
    """Return all Spark settings of a session; the user's own win."""
    chosen = master or settings.master
    here = {**_LOCAL, "spark.driver.memory": _driver_memory()}
    where = here if _is_local(chosen) else _CLUSTER
    return {**_BASE, **where, **settings.conf, "spark.master": chosen}


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _driver_memory() -> str:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{min(_MOST_MIB, max(1024, pages // 3 >> 20))}m"


@contextmanager
def session(settings: Spark, master: str | None = None) -> Iterator["SparkSession"]:
    """Open a session that is stopped at the end; one that runs already is used and left running.

    Raises UsageError when PySpark or Java is missing, or the cluster does not answer.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError(f"Spark is missing: {_PYSPARK}") from error
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    conf = configuration(settings, master)
    if _is_local(conf["spark.master"]):
        conf.setdefault("spark.local.dir", str(scratch.folder("spark")))
    started = _start(conf)
    try:
        with nullcontext() if _is_local(conf["spark.master"]) else shipping.shipped(started.sparkContext):
            yield started
    finally:
        started.stop()


def _start(conf: dict[str, str]) -> "SparkSession":
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    _require_java()
    logging.getLogger().addFilter(_is_no_interrupt)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_HOME", str(_spark_home()))
    if _is_local(conf["spark.master"]):
        # Spark looks its host's name up before anything else, and a host may not know its own.
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    before = SparkConf(loadDefaults=False)
    before.setAll([(k, v) for k, v in conf.items() if k.startswith(_BEFORE_START)])
    with tempfile.TemporaryFile() as log:
        try:
            gateway = SparkContext._gateway or _launch_jvm(before, log)
            SparkContext._ensure_initialized(gateway=gateway)
            # spark-submit has resolved spark.jars already (patterns, Maven names): its list counts.
            inside = [(k, v) for k, v in conf.items() if k != "spark.jars"]
            context = SparkContext(conf=SparkConf().setAll(inside), gateway=gateway)
            context.setLogLevel("ERROR")
            context.pythonExec = conf.get("spark.pyspark.python", context.pythonExec)
            return SparkSession(context)
        except (PySparkException, Py4JError) as error:
            where = "" if _is_local(conf["spark.master"]) else f" on {conf['spark.master']}"
            raise UsageError(
                f"Spark does not start{where}: {_fault(log) or _first_line(error)}"
                "; check --master and JAVA_HOME, or use --engine plain"
            ) from error


def _spark_home() -> Path:
    """Return the home of this PySpark's Spark; PySpark itself looks above the current folder first
    (find_spark_home.py)."""
    import pyspark

    own = Path(str(pyspark.__file__)).resolve().parent
    places = (own / "spark-distribution", own, own.parents[1])
    return next((place for place in places if (place / "bin/spark-submit").is_file()), own)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """py4j logs a traceback for Ctrl-C, which is told in a word elsewhere."""
    return record.msg != "KeyboardInterrupt while sending command."


def _launch_jvm(conf: "SparkConf", log: IO[bytes]) -> Any:
    """Return a JVM that writes to `log`. When its start is interrupted it is ended: PySpark forgets it, and
    without the folder where it should say its port it would wait forever."""
    # Any, for PySpark has no types here, nor a public way to give the JVM other outputs than our own or to
    # learn its pid.
    java_gateway: Any = import_module("pyspark.java_gateway")
    started: list[subprocess.Popen[bytes]] = []

    def remembered(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        # What Spark and its Python workers write are letters: for their owner alone, whatever our umask is.
        started.append(subprocess.Popen(*arguments, **options, umask=0o077))  # noqa: S603 - the arguments are PySpark's own, which calls this for Popen
        return started[-1]

    conf.set(_OPTIONS, f"{conf.get(_OPTIONS, '')} {_left_nowhere()}")
    popen, java_gateway.Popen = java_gateway.Popen, remembered
    try:
        return java_gateway.launch_gateway(conf, {"stdout": log, "stderr": log})
    except BaseException:
        for process in started:
            process.kill()
        raise
    finally:
        java_gateway.Popen = popen


def _left_nowhere() -> str:
    """Options by which what Java writes for itself, of a crash too, goes when this process does."""
    place = shlex.quote(str(scratch.folder("java")))
    return f"-Djava.io.tmpdir={place} -XX:ErrorFile={place}/crash.log -XX:-CreateCoredumpOnCrash"


def list_missing() -> list[str]:
    """Name what Spark needs and this machine lacks, each with how to get it."""
    pyspark = [] if find_spec("pyspark") else [_PYSPARK]
    return pyspark + _missing_java()


def _missing_java() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=str(Path(home, "bin")) if home else None):
        return []
    where = f"in JAVA_HOME = {home}" if home else "on PATH"
    return [
        f"no java {where}: install Java 17 or newer (Debian: apt install openjdk-17-jre-headless), "
        "or set JAVA_HOME"
    ]


def _require_java() -> None:
    """Raise UsageError where PySpark would find no Java to start."""
    for problem in _missing_java():
        raise UsageError(problem)


def _fault(log: IO[bytes]) -> str:
    """Return the line of the JVM's output that names the fault, else its last one; empty where it wrote
    nothing."""
    log.seek(0)
    said = [line.strip()[:300] for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    lines = [line for line in said if not line.startswith(_WITHOUT_REASON)] or said
    naming = (line for line in lines if any(sign in line for sign in _OF_FAULTS))
    return next(naming, lines[-1] if lines else "")


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if "Exception:" in line] or str(error).splitlines()
    return next(iter(lines), "").removeprefix(": ")[:300]
