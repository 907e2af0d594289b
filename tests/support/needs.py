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
from collections.abc import Callable
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
    "maven": (lambda: shutil.which("mvn") is not None, ("maven",)),
    "rabbitmq": (lambda: Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists(), ("rabbitmq-server",)),
    "postgres": (lambda: any(Path("/usr/lib/postgresql").glob("*/bin/postgres")), ("postgresql",)),
    "mariadb": (lambda: shutil.which("mariadbd") is not None, ("mariadb-server",)),
    "redis": (lambda: shutil.which("redis-server") is not None, ("redis-server",)),
    "chromium": (lambda: shutil.which("chromium") is not None, ("chromium",)),
    "npm": (lambda: shutil.which("npm") is not None, ("npm",)),
}
"""Name -> (is it there, Debian packages to try in order)."""
JARS = {
    "rabbitmq4": ["brokers/rabbitmq/install.py"],
    "activemq": ["brokers/activemq/broker.py", "install"],
    "rocketmq": ["brokers/rocketmq/install.py"],
    "kafka": ["brokers/kafka/install.py"],
    "s3": ["servers/s3_server.py", "install"],
    "worker-python": ["servers/worker_python.py"],
}
"""Name -> the program, from here, that fetches it into .brokers."""


def _apt(packages: tuple[str, ...]) -> bool:
    # A private policy keeps the packages' services from being started here.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "-qq", "update"], check=False, env=environment)
    install = ["apt-get", "-qq", "-y", "--no-install-recommends", "install"]
    return any(
        subprocess.run([*install, name], check=False, env=environment).returncode == 0 for name in packages
    )


def provide(name: str) -> str | None:
    """Make sure of one need; the line to show when that failed."""
    if name in JARS:
        program = [sys.executable, str(HERE / JARS[name][0]), *JARS[name][1:]]
        done = subprocess.run(program, check=False, cwd=HERE.parents[1]).returncode == 0
        return None if done else f"{name}: could not be fetched (see above)"
    is_there, packages = NEEDS[name]
    if is_there():
        return None
    if os.geteuid() == 0 and shutil.which("apt-get") and _apt(packages) and is_there():
        return None
    return f"{name} is missing: install it, on Debian with: sudo apt-get install {packages[0]}"


def main(names: list[str]) -> int:
    """Provide all of them; prints a line for each that is missing."""
    problems = [problem for problem in map(provide, names) if problem]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
