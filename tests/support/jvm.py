"""How the Java programs of the tests are fetched, made and started."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

QUICK = (
    "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)  # fmt: skip
"""For what lives for seconds: the second compiler takes as much CPU as the work, and never pays; to verify
what Maven Central has given out takes a tenth of a start."""
BROKERS = Path(__file__).resolve().parents[2] / ".brokers"
"""Where what was fetched or made once lies."""
_COMPILED = BROKERS / "classes"


def maven(*words: str, folder: Path | None = None) -> None:
    """Run Maven, one at a time: two would write the same file of its local repository. Raises
    CalledProcessError."""
    BROKERS.mkdir(exist_ok=True)
    environment = {**os.environ, "MAVEN_OPTS": " ".join(QUICK)}
    with (BROKERS / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["mvn", "-q", "-B", "-ntp", "--strict-checksums", *words]
        subprocess.run(command, check=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL)


def copy_dependencies(pom: Path, target: Path, *words: str) -> None:
    """Fetch all jars that a POM needs to run. Raises CalledProcessError."""
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}")
    maven("-f", str(pom), *words, *goal)


def compiled(texts: Mapping[str, str], jars: str) -> Path:
    """The folder with the classes of source texts (class -> text), made once for these texts and class path.

    To start a source file compiles it each time, and javac takes longer to start than to compile a few.
    """
    folder = _COMPILED / sha256(repr((jars, sorted(texts.items()))).encode()).hexdigest()[:16]
    if folder.exists():
        return folder
    _COMPILED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_COMPILED) as work:
        classes, sources = Path(work, "classes"), [Path(work, f"{name}.java") for name in texts]
        for source in sources:
            source.write_text(texts[source.stem])
        quick = [f"-J{option}" for option in QUICK]
        command = ["javac", *quick, "-nowarn", "-cp", jars, "-d", str(classes), *map(str, sources)]
        subprocess.run(command, check=True)
        with suppress(OSError):  # another worker was first
            classes.rename(folder)
    return folder
