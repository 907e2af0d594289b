"""A local Spark needs of its host neither a name nor a network, and says why Java ends."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

COUNT = """
from dlq.analyzers.spark.session import session
from dlq.core.settings import Settings
with session(Settings().spark) as spark:
    print(spark.range(7).count())
"""
REFUSED = """
import sys
from dlq.analyzers.spark.session import session
from dlq.core.errors import UsageError
from dlq.core.settings import Spark
try:
    with session(Spark(conf={"spark.driver.memory": sys.argv[1]})):
        pass
except UsageError as error:
    print(error)
"""
NAMELESS = ("unshare", "--user", "--map-root-user", "--uts", "sh", "-c")
"""Runs the arguments behind it on a host that cannot resolve its own name."""


def run(code: str, *before: str, told: str = "") -> str:
    command = [*before, sys.executable, "-c", code, told]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_host_that_cannot_resolve_its_own_name_will_do() -> None:
    assert run(COUNT, *NAMELESS, 'hostname no-such-host.invalid && exec "$@"', "sh") == "7\n"


@pytest.mark.parametrize(("memory", "why"), [("much", "Invalid maximum heap size"), ("1k", "Too small")])
def test_what_java_says_before_it_ends_is_said(memory: str, why: str) -> None:
    assert run(REFUSED, told=memory).startswith(f"Spark does not start: {why}")
