"""The jars of RocketMQ that tests use, from Maven Central.

python tests/support/brokers/rocketmq/install.py [VERSION]   into .brokers/rocketmq-<version>/, once
"""

import shutil
import sys
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from support.jvm import BROKERS, copy_dependencies, maven

VERSIONS = ("5.5.0", "4.9.7")
_POM = Path(__file__).resolve().with_name("pom.xml")
_GRPC_CLIENT = "org.apache.rocketmq:rocketmq-client-java:5.1.0"


def folder(version: str) -> Path:
    """Where the jars of `version` lie; other jars go elsewhere."""
    return BROKERS / f"rocketmq-{version}-{sha256(_POM.read_bytes()).hexdigest()[:8]}"


def install(version: str) -> Path:
    """Fetch the jars by Maven; returns at once when they are there."""
    target = folder(version)
    if not (target / ".complete").exists():
        profile = ["-Pproxy"] if has_proxy(version) else []
        copy_dependencies(_POM, target, f"-Drocketmq.version={version}", *profile)
        if profile:
            maven("dependency:copy", f"-Dartifact={_GRPC_CLIENT}", f"-DoutputDirectory={target / 'grpc'}")
        (target / ".complete").touch()
    return target


def has_proxy(version: str) -> bool:
    """Whether gRPC clients can reach it."""
    return version >= "5"


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
