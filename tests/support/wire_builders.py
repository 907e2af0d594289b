"""What tests on brokers make alike: a configuration of one source, and what a command says of it."""

import json
from pathlib import Path
from typing import Any

from support import preloaded


def configure(folder: Path, broker: str, source: str) -> None:
    """A configuration of a broker `b` and a source `s`, by the lines of their tables."""
    text = f'[brokers.b]\n{broker}\n[sources.s]\nbroker = "b"\n{source}\n'
    (folder / "dlq.toml").write_text(text)


def dlq(folder: Path, *words: str, code: int = 0) -> Any:
    """What a command prints."""
    return dlq_aloud(folder, *words, code=code)[0]


def dlq_aloud(folder: Path, *words: str, code: int = 0) -> tuple[Any, str]:
    """What a command prints, and what it says beside that."""
    done = preloaded.run(["-o", "json", *words], folder)
    assert done.returncode == code, (done.stdout, done.stderr[-2000:])
    return json.loads(done.stdout), done.stderr
