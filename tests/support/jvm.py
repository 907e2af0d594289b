"""How the Java programs of the tests are made and started."""

import subprocess
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For what lives for seconds: the second compiler takes as much CPU as the work, and never pays."""
_COMPILED = Path(__file__).parents[2] / ".brokers" / "classes"


def compiled(program: str, text: str, jars: str) -> Path:
    """The folder with the classes of a source text, made once for each text and class path: to start a source
    file compiles it each time, which costs as much as what most of these programs do."""
    digest = sha256(jars.encode() + text.encode()).hexdigest()[:16]
    folder = _COMPILED / f"{program}-{digest}"
    if folder.exists():
        return folder
    _COMPILED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_COMPILED) as work:
        source, classes = Path(work, f"{program}.java"), Path(work, "classes")
        source.write_text(text)
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(classes), str(source)], check=True)
        with suppress(OSError):  # another worker was first
            classes.rename(folder)
    return folder
