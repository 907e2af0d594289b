"""The accessibility checker axe-core, from npm, kept between runs."""

import json
import os
import subprocess
import tarfile
import tempfile
from base64 import b64encode
from hashlib import sha512
from pathlib import Path

from support.servers.chromium import Page
from support.waiting import PATIENCE

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dlq-tests" / "axe"
_PACKAGE = "axe-core-4.14.1.tgz"
_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
_RUN = """axe.run(document, {rules: %s})
    .then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)]))"""


def read_axe() -> str:
    """Its source."""
    package = _CACHE / _PACKAGE
    if not package.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        version = _PACKAGE.removesuffix(".tgz").removeprefix("axe-core-")
        fetch = ["npm", "pack", f"axe-core@{version}", "--silent"]
        with tempfile.TemporaryDirectory(dir=_CACHE) as work:  # another worker may read it meanwhile
            subprocess.run(fetch, cwd=work, check=True, capture_output=True, timeout=PATIENCE)
            Path(work, _PACKAGE).rename(package)
    assert b64encode(sha512(package.read_bytes()).digest()).decode() == _SHA512
    with tarfile.open(package) as content:
        member = content.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def find_violations(page: Page, axe: str, *rules: str) -> list[object]:
    """What it finds on the open page, also by `rules` that it leaves off unless they are asked for."""
    page.run(f"{axe};0")
    return list(page.run(_RUN % json.dumps({rule: {"enabled": True} for rule in rules})))
