"""The jars of Kafka that tests use, from Maven Central.

python tests/support/brokers/kafka/install.py [VERSION]   into .brokers/kafka-<version>/, once
"""

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

VERSIONS = ("4.4.0",)
_HERE = Path(__file__).resolve().parent
_BROKERS = _HERE.parents[3] / ".brokers"
_POM = _HERE / "pom.xml"


def folder(version: str) -> Path:
    """Where the jars of `version` lie; other jars go elsewhere."""
    return _BROKERS / f"kafka-{version}-{sha256(_POM.read_bytes()).hexdigest()[:8]}"


def install(version: str) -> Path:
    """Fetch the jars by Maven; returns at once when they are there."""
    target = folder(version)
    if not (target / ".complete").exists():
        command = ["mvn", "-q", "-B", "-f", str(_POM), f"-Dkafka.version={version}"]
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        subprocess.run([*command, *goal], check=True, stdin=subprocess.DEVNULL)
        (target / ".complete").touch()
    return target


def why_missing(version: str) -> str | None:
    """Why `version` cannot be started here; None when it can."""
    if shutil.which("java") is None:
        return "there is no java"
    if not (folder(version) / ".complete").exists() and shutil.which("mvn") is None:
        return "neither its jars nor mvn are here"
    return None


if __name__ == "__main__":
    for each in sys.argv[1:] or VERSIONS:
        print(install(each))
