"""What the tests and the demo need of the machine: look for it, install it where that is allowed.

    python tests/support/needs.py java rabbitmq ...

Programs come from Debian's packages when this is root on Debian; elsewhere one line says what to
install. Brokers that are only jars or unpacked packages go into .brokers of this project. What is
there already costs nothing.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent


def _java_version() -> int:
    java = shutil.which("java")
    if not java:
        return 0
    text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)', text)
    return int(match[1]) if match else 0


NEEDS: dict[str, tuple[Callable[[], bool], tuple[str, ...]]] = {
    "java": (lambda: _java_version() >= 17, ("openjdk-17-jre-headless", "default-jre-headless")),
    "jdk": (lambda: shutil.which("javac") is not None, ("openjdk-17-jdk-headless", "default-jdk-headless")),
    "ip": (lambda: shutil.which("ip") is not None, ("iproute2",)),
    "gpg": (lambda: shutil.which("gpg") is not None, ("gpg",)),
    "maven": (lambda: shutil.which("mvn") is not None, ("maven",)),
    "rabbitmq": (lambda: Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists(), ("rabbitmq-server",)),
    "postgres": (lambda: any(Path("/usr/lib/postgresql").glob("*/bin/postgres")), ("postgresql",)),
    "mariadb": (lambda: shutil.which("mariadbd") is not None, ("mariadb-server",)),
    "redis": (lambda: shutil.which("redis-server") is not None, ("redis-server",)),
    "chromium": (lambda: shutil.which("chromium") is not None, ("chromium",)),
    "caddy": (lambda: shutil.which("caddy") is not None, ("caddy",)),
    "npm": (lambda: shutil.which("npm") is not None, ("npm",)),
    "promtool": (lambda: shutil.which("promtool") is not None, ("prometheus",)),
}
"""Name -> (is it there, Debian packages to try in order)."""
FETCHED = {
    "rabbitmq4": ["brokers/rabbitmq/install.py"],
    "activemq": ["brokers/activemq/broker.py", "install"],
    "activemq6": ["brokers/activemq/broker.py", "install", "6.3.1", "2.56.0"],
    "rocketmq": ["brokers/rocketmq/install.py"],
    "rocketmq5": ["brokers/rocketmq/install.py", "5.5.0"],
    "kafka": ["brokers/kafka/install.py"],
    "s3": ["servers/s3_server.py", "install"],
    "frameworks": ["../frameworks/clients.py", "py"],
    "worker-python": ["servers/worker_python.py"],
}
"""Name -> the program, from here, that fetches or makes it."""


def _apt(*words: str) -> bool:
    # A private policy keeps the packages' services from being started here.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    return subprocess.run(["apt-get", "-qq", *words], check=False, env=environment).returncode == 0


def _install(*packages: str) -> bool:
    words = ("--no-install-recommends", "install", *packages)
    _say_how_much(*words)
    return _apt("-y", *words)


def _say_how_much(*words: str) -> None:
    """What apt-get is going to fetch, and the room that it takes, in its own words."""
    asked = ["apt-get", "--assume-no", *words]
    told = subprocess.run(
        asked, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    sizes = [line for line in told.stdout.splitlines() if line.startswith(("Need to get", "After this"))]
    print("Fetching", *words[2:], "by apt-get:", *sizes, flush=True)


def provide(names: Sequence[str]) -> list[str]:
    """Make sure of programs; a line for each that is missing all the same."""
    missing = [name for name in names if not NEEDS[name][0]()]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        _apt("update")
        if not _install(*(NEEDS[name][1][0] for name in missing)):
            for name in missing:
                any(_install(package) for package in NEEDS[name][1])
    return [
        f"{name} is missing: install it, on Debian with: sudo apt-get install {NEEDS[name][1][0]}"
        for name in missing
        if not NEEDS[name][0]()
    ]


def fetch(name: str) -> str | None:
    """Make sure of one of `FETCHED`; the line to show when that failed."""
    program = [sys.executable, str(HERE / FETCHED[name][0]), *FETCHED[name][1:]]
    done = subprocess.run(program, check=False, cwd=HERE.parents[1]).returncode == 0
    return None if done else f"{name}: could not be fetched (see above)"


def main(names: list[str]) -> int:
    """Provide all of them; prints a line for each that is missing."""
    problems = provide([name for name in names if name in NEEDS])
    with ThreadPoolExecutor() as pool:
        found = pool.map(fetch, [name for name in names if name in FETCHED])
        problems += filter(None, found)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
