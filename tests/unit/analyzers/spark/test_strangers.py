"""Other users of the machine can talk to the ports of a local session, and are refused at all of them."""

import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from support.analyzers.letters import died
from support.archives import write_segment

from dlq.analyzers.analysis import analyze
from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Settings

pytestmark = pytest.mark.spark

LISTENING = "0A"
A_JAVA_OBJECT = b"\xac\xed\x00\x05t\x00\x05hello"
RPC_REQUEST, ANSWER, ONE_WAY = 3, 4, 9
ASK_THE_GATEWAY = b"c\nz:java.lang.System\ngetProperty\nsjava.home\ne\n"
YES = b"!y"


def jvm_of(spark: SparkSession) -> int:
    jvm: Any = spark._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def ports_of(process: int) -> list[int]:
    """What it listens on, by the kernel's tables."""
    mine = set()
    for name in Path(f"/proc/{process}/fd").iterdir():
        try:
            mine.add(os.readlink(name))
        except OSError:
            continue
    tables = [Path(f"/proc/{process}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = (line.split() for lines in tables for line in lines)
    return [int(r[1].split(":")[1], 16) for r in rows if r[3] == LISTENING and f"socket:[{r[9]}]" in mine]


def told(port: int, said: bytes) -> bytes:
    """What a stranger who says this hears until the other side closes, or is silent."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), 1) as line:
        line.sendall(said)
        try:
            while part := line.recv(65536):
                heard += part
        except (TimeoutError, ConnectionResetError):
            pass
    return heard


def frame(kind: int, head: bytes, body: bytes = b"") -> bytes:
    """A message as Spark's processes send them to each other."""
    return struct.pack(">qb", 9 + len(head) + len(body), kind) + head + body


def test_a_stranger_is_refused_at_every_port_and_an_analysis_runs(
    spark: SparkSession, store: LocalStore
) -> None:
    length = struct.pack(">i", len(A_JAVA_OBJECT))
    request = frame(RPC_REQUEST, struct.pack(">q", 7) + length, A_JAVA_OBJECT)
    ports = ports_of(jvm_of(spark))
    answers = [told(port, request) for port in ports]
    assert sum(b"Expected SaslMessage" in answer for answer in answers) == 2  # the driver's, the blocks'
    assert not any(answer[8:9] == bytes([ANSWER]) for answer in answers)
    for port in ports:
        assert told(port, frame(ONE_WAY, length, A_JAVA_OBJECT)) == b""
        assert not told(port, ASK_THE_GATEWAY).startswith(YES)
    write_segment(store, "p-0", [died(("rejected", "orders", 1), record_id=f"{1:032x}", captured_at=1)])
    assert dict(analyze(store, Settings(), engine="spark").causes) == {"poison_ack": 1}


def test_no_process_shows_a_secret_of_the_session(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    hadoop: Any = context._jvm.org.apache.hadoop
    user = hadoop.security.UserGroupInformation.getCurrentUser()
    kept_by_spark = user.getCredentials().getSecretKey(hadoop.io.Text("sparkCookie"))
    secrets = [bytes(kept_by_spark), context._gateway.gateway_parameters.auth_token.encode()]
    assert all(len(secret) >= 32 for secret in secrets)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            shown = (process / "cmdline").read_bytes()
        except OSError:
            continue
        assert not any(secret in shown for secret in secrets)
    assert context.getConf().get("spark.authenticate.secret") is None


def test_nothing_of_the_current_folder_runs_in_a_session(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    assert jvm.java.lang.System.getenv("SPARK_HOME") == str(Path(pyspark.__file__).parent)
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: (sys.flags.safe_path, list(sys.path)))
    is_safe, places = found.collect()[0]
    assert is_safe
    assert not {"", ".", os.getcwd()} & set(places)
