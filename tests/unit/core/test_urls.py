"""No URL of the configuration holds a password, and no message shows what could hide one."""

from typing import Any

import pytest
from support.rows import each_row

from dlq.core.configuration import parse
from dlq.core.errors import ConfigError, DlqError
from dlq.core.values import urls

WITH_PASSWORD = [
    "amqp://me:geheim@host/vhost", "amqp://:geheim@host", "amqp://me:ge/heim@host",
    "amqp://me:ge,heim@host", "amqp://me:,geheim@host", "redis://:geheim,1@host", "amqp://me:geheim#1@host",
    "amqp://me:geheim?1@host", "amqp://h1:5672,me:geheim@h2", "tcp://me:geheim,1@h1:1,tcp://h2:2",
    "stomp://a@mq1:61614,b:geheim@mq2:61614", "tcp://a@h1:1,tcp://b:geheim@h2:2", "failover:(tcp://a:geheim@h:1)",
    "postgresql://u@h/db?password=geheim", "postgresql://u@h/db?a=b&sslpassword=geheim",
    "redis://h/0?p%61ssword=geheim", "redis://h/0#PASSWD=geheim", "https://h/?api_token=geheim",
    "https://h/?a=1;secret=geheim",
    *(
        f"https://h/?{name}=geheim"
        for name in (
            "api_key", "apikey", "api-key", "API_KEY", "key", "Key", "x-api-key", "access_key", "accessKey",
            "sig", "account.key", "private_key", "signature", "X-Amz-Signature", "sas", "jwt", "bearer",
            "auth", "psk", "pw", "sslpassphrase", "a%70ikey", "client_secret", "X-Amz-Credential", "pin",
            "Authorization",
        )
    ),
]  # fmt: skip
WITHOUT = [
    "amqp://me@host:5672/vhost", "stomp://h1:1,b@h2:2", "stomp://[::1]:1,b@h2", "s3://b/a:c,d@e",
    "failover:(tcp://a@h1:1,tcp://b@h2:2)", "redis://a@h:1/0?name=c@d",
    "stomp+tls://mq1:61614,mq2:61614", "tcp://a@h1:1,tcp://b@h2:2", "sqlite",
    "amqp://host:5672/v@host", "postgresql://u@h/db?passfile=/run/pgpass&sslmode=require", "s3://bucket/path",
    "sqlite:////var/lib/dlq/ledger.db", "", "./archive", "mysql://u@h/db?ssl_ca=/a&ssl_cert=/b&ssl_key=/c",
    "postgresql://u@h/db?sslkey=/k&sslcert=/c", "rediss://h/0?ssl_keyfile=/k", "https://h/?keyspace=a&author=b",
]  # fmt: skip
NO_ADDRESSES = [
    "[", "[::1", "]", "[::1]:x", "host:x", "host:99999", "host:-1", f"host:{'9' * 5000}", "::1", "a\u2100b",
    "..", f"{'x' * 300}.example", "é" * 70, ":5672",
]  # fmt: skip
"""What urllib, the resolver or a driver would raise an error of its own for."""
PLACES: dict[str, dict[str, Any]] = {
    "archive": {"archive": "URL"},
    "ledger.url": {"ledger": {"url": "URL"}},
    "evidence.pay.url": {"evidence": {"pay": {"kind": "rocketmq-dedup", "url": "URL"}}},
    "profiles.nightly.metrics_otlp": {"profiles": {"nightly": {"metrics_otlp": "URL"}}},
    **{
        f"brokers.{kind}.{name}": {"brokers": {kind: {"kind": kind, name: "URL"}}}
        for kind, name in (
            ("rabbitmq", "url"),
            ("rabbitmq", "management_url"),
            ("activemq", "jolokia_url"),
            ("activemq", "openwire_url"),
        )
    },
}


def filled(table: Any, url: str) -> Any:
    return (
        {key: filled(value, url) for key, value in table.items()}
        if isinstance(table, dict)
        else (url if table == "URL" else table)
    )


@each_row("place", PLACES)
@each_row("url", WITH_PASSWORD)
def test_a_password_is_refused_in_every_url_and_is_not_repeated(place: str, url: str) -> None:
    with pytest.raises(ConfigError, match=f"{place} holds a password") as refused:
        parse(filled(PLACES[place], url))
    assert "geheim" not in str(refused.value)


@each_row("url", WITHOUT)
def test_a_url_without_a_password_is_taken(url: str) -> None:
    urls.check("place", url)


@each_row("place", PLACES)
@each_row("host", NO_ADDRESSES)
def test_what_is_no_address_is_refused_in_every_url_in_a_short_line(place: str, host: str) -> None:
    for url in (f"http://{host}/x", f"http://me@{host}", f"http://good:1,{host}"):
        with pytest.raises(ConfigError, match=f"^{place}: .* is not host:port; write it like") as refused:
            parse(filled(PLACES[place], url))
        assert len(str(refused.value)) < 400


@each_row("url", WITH_PASSWORD)
def test_a_url_is_shown_without_what_could_hide_a_password(url: str) -> None:
    assert "heim" not in urls.without_password(url)


def test_the_error_of_a_server_out_of_reach_does_not_show_the_parameters_of_its_url(tmp_path: Any) -> None:
    pytest.importorskip("psycopg")
    from dlq.archive.storage.store import LocalStore
    from dlq.core.settings import Ledger
    from dlq.replay.ledger import as_arrow

    url = "postgresql://u@127.0.0.1:1/db?application_name=geheim&connect_timeout=1"
    store = LocalStore(str(tmp_path))
    store.put("ledger.json", b'{"format": 1, "server": "postgresql"}')
    with pytest.raises(DlqError) as refused:
        as_arrow(Ledger(url=url), store)
    assert "127.0.0.1" in str(refused.value)
    assert "geheim" not in str(refused.value)
