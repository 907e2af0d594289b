"""Real frameworks that let records die on a node: Spring, Streams and Connect in one process
(KafkaDeaths.java).
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.brokers.kafka.install import install_frameworks
from support.jvm import QUICK, compiled
from support.waiting import PATIENCE

_HERE = Path(__file__).resolve().parent
_PROGRAM = "KafkaDeaths"
_SINK = f"{_PROGRAM}$Refusing"
_SERVICE = "META-INF/services/org.apache.kafka.connect.sink.SinkConnector"


@contextmanager
def running(bootstrap: str, prefix: str) -> Iterator[None]:
    """They read the topics that begin with `prefix` (see the program) until the end of the block."""
    jars = f"{install_frameworks()}/*"
    classes = compiled({_PROGRAM: (_HERE / f"{_PROGRAM}.java").read_text()}, jars)
    with tempfile.TemporaryDirectory(prefix="kafka-frameworks-") as folder:
        service = Path(folder, _SERVICE)
        service.parent.mkdir(parents=True)
        service.write_text(_SINK)
        command = ["java", "-Xmx256m", *QUICK, "-cp", f"{classes}:{folder}:{jars}", _PROGRAM]
        program = subprocess.Popen([*command, bootstrap, prefix, folder], stdin=subprocess.DEVNULL)
        try:
            yield
            assert program.poll() is None, "the frameworks ended by themselves"
        finally:
            program.kill()
            program.wait(PATIENCE)
