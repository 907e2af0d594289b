"""What many tests begin with: what `dlq` printed, sources on a broker of a test, and scripts as modules."""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

Dlq = Callable[..., tuple[int, str, str]]
"""Runs `dlq WORDS...`: its exit code, what it printed, and what it complained of."""


def rows(out: str) -> list[dict[str, Any]]:
    """Lines of JSON."""
    return [json.loads(line) for line in out.splitlines()]


def memory_sources(url: str, *names: str, queue: str = "{}.dlq", more: str = "") -> str:
    """A configuration of sources on a broker of the process, or in a file, and more for each of them."""
    broker = f'[brokers.shop]\nkind = "memory"\nurl = "{url}"\n'
    return broker + "".join(
        f'[sources.{name}]\nbroker = "shop"\nqueue = "{queue.format(name)}"\n{more}' for name in names
    )


def in_file(folder: Path) -> str:
    """The URL of a broker in this folder."""
    return f"memory://{folder}/broker.db"


def load_script(path: Path) -> ModuleType:
    """A script that is in no package, as a module."""
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
