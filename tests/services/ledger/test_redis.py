"""The ledger in Redis keeps the contract, and says what its server may forget."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.ledger_contract import LedgerContract, Opening, letters
from support.servers.ledgers import Redis

from dlq.cli.app import run
from dlq.connectors.memory import MemoryBroker
from dlq.core.errors import ArchiveError, ConfigError, FormatTooNew
from dlq.core.settings import Ledger as LedgerSettings
from dlq.replay.ledger.redis import RedisLedger


@pytest.fixture
def config(redis_url: str) -> Iterator[LedgerSettings]:
    """A database that is empty before and after."""
    url = f"{redis_url.rpartition('/')[0]}/9"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        yield LedgerSettings(url)
        client.flushdb()


@pytest.fixture
def ledger(config: LedgerSettings) -> Iterator[RedisLedger]:
    book = RedisLedger(config)
    yield book
    book.close()


class TestRedis(LedgerContract):
    """The suite, on a server."""

    @pytest.fixture
    def opening(self, config: LedgerSettings) -> Opening:
        return lambda clock: RedisLedger(config, clock)


def test_a_claim_whose_answer_was_lost_is_not_forgotten(
    ledger: RedisLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ledger._server.client
    execute = client.execute_command
    lost = iter([True])

    def answer_lost(*words: Any, **options: Any) -> Any:
        answer = execute(*words, **options)
        if words[0] == "EVALSHA" and next(lost, False):
            raise redis.ConnectionError("the connection ended")
        return answer

    monkeypatch.setattr(client, "execute_command", answer_lost)
    assert ledger.claim("plan", letters(1, 2)) == {"key1", "key2"}
    assert ledger.claim("plan", letters(1, 2, 3)) == {"key3"}


def test_a_server_that_has_lost_the_ledger_sends_nothing_twice(
    ledger: RedisLedger, config: LedgerSettings
) -> None:
    ledger.claim("plan", letters(1))
    with redis.Redis.from_url(config.url) as client:
        client.flushdb()
    with pytest.raises(ArchiveError, match="has lost the ledger"):
        ledger.claim("plan", letters(1, 2))


def test_a_newer_ledger_is_refused(config: LedgerSettings) -> None:
    with redis.Redis.from_url(config.url) as client:
        client.set("{dlq}:ledger", "2:later")
    with pytest.raises(FormatTooNew, match="upgrade dlq"):
        RedisLedger(config)


def test_a_durable_server_is_no_reason_to_warn(ledger: RedisLedger) -> None:
    assert ledger.warnings() == []


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [("appendonly", "no", "nothing on disk"), ("appendfsync", "everysec", "a power cut forgets")],
)
def test_a_server_that_may_forget_is_warned_of(
    ledger: RedisLedger, config: LedgerSettings, setting: str, value: str, text: str
) -> None:
    with redis.Redis.from_url(config.url, decode_responses=True) as client:
        before = client.config_get(setting)[setting]
        client.config_set(setting, value)
        try:
            [warning] = ledger.warnings()
        finally:
            client.config_set(setting, before)
    assert text in warning
    assert "appendfsync always" in warning


def test_a_server_that_evicts_is_warned_of() -> None:
    server = Redis("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    server.start()
    try:
        warnings = RedisLedger(LedgerSettings(server.url)).warnings()
    finally:
        server.stop()
    assert [text for text in warnings if "throws entries away" in text]


@pytest.mark.parametrize(
    ("url", "text"),
    [("redis://:secret@h/0", "password"), ("redis://h:port/0", "ledger.url")],
)
def test_a_wrong_redis_url_is_a_configuration_error(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        RedisLedger(LedgerSettings(url))
    assert "secret" not in str(caught.value)


def test_a_redis_that_is_not_there_is_one_line() -> None:
    with pytest.raises(ArchiveError, match="the ledger redis") as caught:
        RedisLedger(LedgerSettings("redis://127.0.0.1:1/0"))
    assert len(str(caught.value).splitlines()) == 1


def test_the_command_line_moves_a_ledger_to_redis_and_goes_on(
    config: LedgerSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = MemoryBroker(f"{tmp_path}/broker.db")
    for queue in ("orders", "orders.dlq"):
        broker.declare(queue)
    broker.put("orders.dlq", *({"broker_kind": "rabbitmq", "body_text": f"order {n}"} for n in range(5)))
    (tmp_path / "dlq.toml").write_text(
        f'archive = "{tmp_path}/archive"\n[brokers.shop]\nkind = "memory"\nurl = "memory://{tmp_path}/broker.db"\n'
        '[sources.orders]\nbroker = "shop"\nqueue = "orders.dlq"\nmode = "drain"\n'
    )

    def dlq(*words: str, code: int = 0) -> Any:
        assert run(["-c", f"{tmp_path}/dlq.toml", "-o", "json", *words]) == code
        out = capsys.readouterr().out
        return json.loads(out) if out else None

    dlq("pull")
    one = dlq("ls")[0]["record_id"]
    dlq("replay", "plan", "--where", f"record_id = '{one}'", "--to", "queue:orders", "--apply", "--yes")
    monkeypatch.setenv("DLQ_LEDGER_URL", config.url)
    dlq("doctor", code=3)
    assert dlq("ledger", "move") == {"replays": 1, "new": 1}
    rest = dlq("replay", "plan", "--any-advice", "--to", "queue:orders", "--apply", "--yes")
    assert (rest["sent"], broker.depth("orders")) == (4, 5)
    assert [row["replay_state"] for row in dlq("ls")] == ["confirmed"] * 5
    assert dlq("query", "select state, count(*) as n from replays group by 1") == [
        {"state": "confirmed", "n": 5}
    ]
    assert dlq("verify")["balanced"] is True
    dlq("doctor")
