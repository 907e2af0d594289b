"""The jars of Kafka that tests use, from Maven Central.

python tests/support/brokers/kafka/install.py [VERSION]   a node and the frameworks, into .brokers, once
"""

import shutil
import sys
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from support.jvm import BROKERS, copy_dependencies, maven

VERSIONS = ("4.4.0",)
_HERE = Path(__file__).resolve().parent
_POM = _HERE / "pom.xml"
_FRAMEWORKS = _HERE / "frameworks-pom.xml"


def install(version: str) -> Path:
    """Fetch the jars of a node by Maven; returns at once when they are there."""
    return _fetched(_POM, f"kafka-{version}", f"-Dkafka.version={version}")


def install_frameworks() -> Path:
    """The same for those of Spring."""
    return _fetched(_FRAMEWORKS, "kafka-frameworks")


def install_tools(version: str) -> Path:
    """The jar of the commands that administrators use."""
    target = BROKERS / f"kafka-tools-{version}"
    if not target.exists():
        artifact = f"org.apache.kafka:kafka-tools:{version}"
        maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={target}", folder=BROKERS)
    return target / f"kafka-tools-{version}.jar"


def _folder(pom: Path, name: str) -> Path:
    """Other jars go elsewhere."""
    return BROKERS / f"{name}-{sha256(pom.read_bytes()).hexdigest()[:8]}"


def _fetched(pom: Path, name: str, *properties: str) -> Path:
    target = _folder(pom, name)
    if not (target / ".complete").exists():
        copy_dependencies(pom, target, *properties)
        (target / ".complete").touch()
    return target


def why_missing(version: str) -> str | None:
    """Why `version` cannot be started here; None when it can."""
    if shutil.which("java") is None:
        return "there is no java"
    wanted = (_folder(_POM, f"kafka-{version}"), _folder(_FRAMEWORKS, "kafka-frameworks"))
    if shutil.which("mvn") is None and not all((jars / ".complete").exists() for jars in wanted):
        return "neither its jars nor mvn are here"
    return None


if __name__ == "__main__":
    for each in sys.argv[1:] or VERSIONS:
        print(install(each))
    print(install_frameworks())
