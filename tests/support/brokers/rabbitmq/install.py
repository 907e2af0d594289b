"""Put a RabbitMQ newer than the distribution's into a folder, without installing anything.

    python tests/support/brokers/rabbitmq/install.py        into .brokers/rabbitmq-4 of this project, once

The packages of rabbitmq-server (sid's 4.3, else trixie's 4.0), its Erlang and the C libraries that
Erlang needs come by name from the Debian mirror that this machine's own apt sources name, through a
private apt state. A newer Erlang wants a newer glibc than the host's, so every Erlang executable
becomes a two-line script that runs it under the folder's own ld.so. Debian on amd64 only; no root.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[4]
DESTINATION = PROJECT / ".brokers" / "rabbitmq-4"
SUITES = ("sid", "trixie")
_LIBRARIES = {
    "libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libtinfo6", "libncursesw6", "libssl3t64", "libsystemd0",
    "libcap2", "libsctp1", "libzstd1", "liblzma5", "libmimalloc3", "openssl-provider-legacy",
}  # fmt: skip
_SOURCE = re.compile(r"^(?:URIs:|deb\s+(?:\[.*?\]\s+)?)\s*(\S+/debian)/?(?=\s|$)", re.M)
_KEYRING = re.compile(r"(?:Signed-By:\s*|signed-by=)(/[^\s\]]+)")


class NotInstalledError(Exception):
    """No RabbitMQ 4 could be had; the text says why."""


def installed() -> Path | None:
    """The root folder of an earlier installation."""
    root = DESTINATION / "root"
    return root if (DESTINATION / "done").exists() else None


def install() -> Path:
    """Fetch RabbitMQ 4 unless it is there; returns the root for `rabbitmq_broker.Node`."""
    root = installed()
    if root is not None:
        return root
    failures = []
    for suite in SUITES:
        shutil.rmtree(DESTINATION, ignore_errors=True)
        try:
            root = _wrap(_fetch(suite))
        except (OSError, subprocess.CalledProcessError, LookupError) as error:
            failures.append(f"{suite}: {error}")
            continue
        (DESTINATION / "done").write_text(f"{suite}\n")
        shutil.rmtree(DESTINATION / "apt")
        return root
    raise NotInstalledError("; ".join(failures))


def _mirror() -> tuple[str, str]:
    """The URI and keyring of the first Debian archive in this machine's apt sources."""
    for name in ("/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*"))):
        text = Path(name).read_text() if name.endswith((".list", ".sources")) and os.path.exists(name) else ""
        source = _SOURCE.search(text)
        if source:
            keyring = _KEYRING.search(text)
            return source[1], keyring[1] if keyring else "/usr/share/keyrings/debian-archive-keyring.gpg"
    raise LookupError("no Debian mirror in the apt sources")


def _fetch(suite: str) -> Path:
    apt = DESTINATION / "apt"
    for folder in ("sources", "state/lists/partial", "cache/archives/partial", "debs"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    uri, keyring = _mirror()
    (apt / "sources/x.sources").write_text(
        f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\nSigned-By: {keyring}\n"
    )
    (apt / "status").touch()
    (apt / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{apt}/sources";\n'
        f'Dir::State "{apt}/state";\n'
        f'Dir::State::status "{apt}/status";\nDir::Cache "{apt}/cache";\nAcquire::Languages "none";\n'
        'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\nAPT::Sandbox::User "";\n'
    )
    environment = {**os.environ, "APT_CONFIG": f"{apt}/apt.conf", "LC_ALL": "C"}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=apt / "debs"
        )
        return done.stdout

    run("apt-get", "-q", "update")
    plan = run("apt-get", "-s", "-y", "--no-install-recommends", "install", "rabbitmq-server")
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    wanted = [n for n in names if n.startswith(("erlang-", "rabbitmq-server")) or n in _LIBRARIES]
    run("apt-get", "-q", "download", *wanted)
    root = DESTINATION / "root"
    for package in (apt / "debs").glob("*.deb"):
        run("dpkg", "-x", str(package), str(root))
    return root


def _wrap(root: Path) -> Path:
    loader = next(iter(root.glob("usr/lib/*/ld-linux-*.so.*")), None)
    if loader is None:
        raise LookupError("the packages hold no ld.so")
    erlang = root / "usr/lib/erlang"
    for pattern in ("bin/*", "erts-*/bin/*", "lib/*/priv/bin/*"):
        for file in erlang.glob(pattern):
            if file.is_file() and not file.is_symlink():
                _wrap_one(file, loader, erlang)
    return root


def _wrap_one(file: Path, loader: Path, erlang: Path) -> None:
    content = file.read_bytes()
    if content.startswith(b"\x7fELF"):
        program = file.with_name(f"{file.name}.elf")
        file.rename(program)
        file.write_text(
            f'#!/bin/sh\nexec {loader} --argv0 "$0" --library-path {loader.parent} {program} "$@"\n'
        )
        file.chmod(0o755)
    elif content.startswith(b"#!"):
        file.write_bytes(content.replace(b"/usr/lib/erlang", str(erlang).encode()))


if __name__ == "__main__":
    started = time.monotonic()
    try:
        print(f"RabbitMQ 4 is in {install()} ({time.monotonic() - started:.0f} s)")
    except NotInstalledError as error:
        sys.exit(f"RabbitMQ 4 cannot be fetched: {error}")
