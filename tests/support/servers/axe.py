"""The accessibility checker axe-core, from npm, kept between runs."""

import os
import subprocess
import tarfile
from pathlib import Path

from support.servers.chromium import Page
from support.waiting import PATIENCE

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dlq-tests" / "axe"
_RUN = "axe.run(document).then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)]))"


def read_axe() -> str:
    """Its source."""
    if not list(_CACHE.glob("*.tgz")):
        _CACHE.mkdir(parents=True, exist_ok=True)
        fetch = ["npm", "pack", "axe-core@4", "--silent"]
        subprocess.run(fetch, cwd=_CACHE, check=True, capture_output=True, timeout=PATIENCE)
    with tarfile.open(next(_CACHE.glob("*.tgz"))) as package:
        member = package.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def find_violations(page: Page, axe: str) -> list[object]:
    """What it finds on the open page."""
    page.run(f"{axe};0")
    return list(page.run(_RUN))
