"""What RocketMQDedupListener and shine-mq leave in real stores comes into the archive as it is."""

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import redis
import sqlalchemy as sa
from support.archives import letter, write_segment
from support.ports import free_ports
from support.servers.hostile import certificate
from support.servers.ledgers import SERVERS, Server
from support.servers.redis_server import Redis

from dlq.archive import store_facts
from dlq.archive.storage.store import LocalStore
from dlq.capture.external_stores import take
from dlq.connectors.external_stores import redis as redis_store
from dlq.connectors.external_stores.stores import read
from dlq.core.clock import now
from dlq.core.configuration import parse
from dlq.core.errors import AccessDenied, Unreachable
from dlq.core.settings import Settings

HOUR = 3_600_000_000
TABLE = """CREATE TABLE t_rocketmq_dedup (application_name varchar(255) NOT NULL, topic varchar(255) NOT NULL,
    tag varchar(16) NOT NULL, msg_uniq_key varchar(255) NOT NULL, status varchar(16) NOT NULL,
    expire_time bigint NOT NULL, UNIQUE (application_name, topic, tag, msg_uniq_key))"""


def settings(url: str, kind: str = "rocketmq-dedup", **table: object) -> Settings:
    return parse({"evidence": {"pay": {"kind": kind, "url": url, **table}}})


def java(text: str) -> bytes:
    """As Spring's default template writes a string."""
    return b"\xac\xed\x00\x05t" + len(text).to_bytes(2, "big") + text.encode()


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as connected:
        yield connected
        connected.flushdb()


def test_dedup_keys_come_with_the_time_at_which_they_expire(client: redis.Redis, redis_url: str) -> None:
    client.set("MSGDEDUP:pay:orders:paid:K1", "CONSUMED", px=86_400_000)
    client.set("MSGDEDUP:pay:orders:K2", "CONSUMING", px=3_600_000)
    client.set("MSGDEDUP:p*y:orders:K3", "CONSUMED")
    client.set("MSGDEDUPLICATED:pay:orders:K4", "CONSUMED")
    client.hset("MSGDEDUP:not-a-record", "field", "value")
    found = {fact.key: fact for fact in read(settings(redis_url).evidence["pay"])}
    assert {key: fact.state for key, fact in found.items()} == {
        "pay:orders:paid:K1": "CONSUMED", "pay:orders:K2": "CONSUMING", "p*y:orders:K3": "CONSUMED",
    }  # fmt: skip
    assert 23 * HOUR < (found["pay:orders:paid:K1"].until or 0) - now() <= 24 * HOUR
    assert found["p*y:orders:K3"].until is None
    mine = read(settings(redis_url, application="p*y").evidence["pay"])
    assert [fact.key for fact in mine] == ["p*y:orders:K3"]


def test_the_hashes_of_shine_are_read_as_text_json_and_java_strings(
    client: redis.Redis, redis_url: str
) -> None:
    client.hset("shop:distributed_msg_prepare", "W1", '{"bizId": "order"}')
    client.hset("shop:distributed_msg_ready", '"c_order_10.0.0.1_1795000000000"', "{}")
    rolled_back = java("shop:distributed_msg_rollback"), java("M3"), b"\xac\xed\x00\x05sr\x00"
    client.execute_command("HSET", *rolled_back)
    client.hincrbyfloat("shop:receive_retries", "M4", 2)
    client.hset("distributed_msg_ready", "another application's", "{}")
    found = read(settings(redis_url, "shine-mq", prefix="shop:").evidence["pay"])
    assert {(fact.key, fact.state, fact.number) for fact in found} == {
        ("work:W1", "prepared", None), ("message:c_order_10.0.0.1_1795000000000", "ready", None),
        ("message:M3", "rolled_back", None), ("message:M4", "retries", 2),
    }  # fmt: skip


def test_a_large_store_comes_whole_and_once(
    client: redis.Redis, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_facts, "PART_ROWS", 4000)
    for start in range(0, 10_000, 1000):
        client.mset({f"MSGDEDUP:pay:orders:K{n}": "CONSUMED" for n in range(start, start + 1000)})
    store = LocalStore(str(tmp_path))
    write_segment(store, "p-0", [letter(1)])
    (taken,) = take(store, settings(redis_url, sources=["ord*"]))
    rows = [pq.read_table(store.url(name)) for name in taken.files]
    assert (taken.rows, [table.num_rows for table in rows]) == (10_000, [4000, 4000, 2000])
    assert len({key for table in rows for key in table["key"].to_pylist()}) == 10_000
    assert take(store, settings(redis_url, sources=["payments"])) == ()


def test_a_redis_that_wants_a_password_gets_it_from_a_file(tmp_path: Path) -> None:
    server = Redis("--requirepass", "geheim")
    server._answers = lambda: server.process is not None and _listens(server.port)  # type: ignore[method-assign]
    server.start()
    try:
        (tmp_path / "secret").write_text("geheim\n")
        known = settings(server.url, password_file=str(tmp_path / "secret"))
        assert list(read(known.evidence["pay"])) == []
        with redis_store._connected(known.evidence["pay"]) as client:
            client.config_set("requirepass", "changed")
            (tmp_path / "secret").write_text("changed\n")
            client.connection_pool.disconnect()
            assert client.ping(), "a connection that is made anew asks for the password anew"
        with pytest.raises(AccessDenied, match=r"evidence\.pay: Redis refused"):
            list(read(settings(server.url).evidence["pay"]))
    finally:
        server.stop()


class RedisByTls(Redis):
    def command(self) -> Sequence[str]:
        [self.tls] = free_ports(1)
        pem = str(self.folder / "server.pem")
        files = ["--tls-cert-file", pem, "--tls-key-file", pem, "--tls-auth-clients", "no"]
        return [*super().command(), "--tls-port", str(self.tls), *files]


def test_a_redis_by_tls_is_read_and_a_stranger_or_another_name_is_not(tmp_path: Path) -> None:
    server = RedisByTls()
    authority, stranger = (certificate(tmp_path, f"IP:127.0.0.{last}") for last in (1, 2))
    shutil.copy(authority, server.folder / "server.pem")
    shutil.chown(server.folder / "server.pem", server.user)
    server.start()
    try:
        by_tls = f"rediss://{{}}:{server.tls}/0?ssl_ca_certs={{}}"
        assert list(read(settings(by_tls.format("127.0.0.1", authority)).evidence["pay"])) == []
        for host, of_whom in (("127.0.0.1", stranger), ("localhost", authority)):
            with pytest.raises(Unreachable, match=r"(?i)certificate|hostname"):
                list(read(settings(by_tls.format(host, of_whom)).evidence["pay"]))
    finally:
        server.stop()


def _listens(port: int) -> bool:
    try:
        redis.Redis(port=port, password="geheim").ping()
    except redis.RedisError:
        return False
    return True


@pytest.fixture(params=["postgres", "mariadb"])
def ledger_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = SERVERS[request.param]()
    server.start()
    yield server
    server.stop()


def test_the_table_of_the_listener_is_streamed_from_a_database(ledger_server: Server) -> None:
    drivers = {"postgresql:": "postgresql+psycopg:", "mysql:": "mysql+pymysql:"}
    scheme = ledger_server.url.partition("//")[0]
    engine = sa.create_engine(ledger_server.url.replace(scheme, drivers[scheme]))
    millis = int(time.time() * 1000)
    rows = [
        {"a": "pay", "t": "orders", "g": "paid" if n else "", "k": f"K{n}", "s": "CONSUMED", "e": millis + n}
        for n in range(12_000)
    ]
    insert = sa.text("INSERT INTO t_rocketmq_dedup VALUES (:a, :t, :g, :k, :s, :e)")
    with engine.begin() as connection:
        connection.execute(sa.text(TABLE))
        connection.execute(insert, rows)
        connection.execute(insert, {"a": "other", "t": "orders", "g": "", "k": "K", "s": "CONSUMING", "e": 1})
    engine.dispose()
    mine = list(read(settings(ledger_server.url, application="pay").evidence["pay"]))
    assert len({fact.key for fact in mine}) == 12_000
    assert min(mine, key=lambda fact: fact.until or 0) == ("pay:orders:K0", "CONSUMED", millis * 1000, None)
    everything = read(settings(ledger_server.url, table="t_rocketmq_dedup").evidence["pay"])
    assert ("other:orders:K", "CONSUMING", 1000, None) in set(everything)
