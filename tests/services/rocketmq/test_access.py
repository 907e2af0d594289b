"""Who may read: RocketMQ's access control lists, 1.0 on 4.9 and 2.0 on 5.5, and TLS."""

import json
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver
from support.brokers.rocketmq.fixtures import connector_of, on_every_version, on_newest_version
from support.brokers.rocketmq.sending import found, outgoing, published
from support.brokers.seen import read_all
from support.jvm import QUICK
from support.servers.hostile import certificate
from support.waiting import PATIENCE, eventually

from dlq.connectors.base import ReadRequest, Target
from dlq.connectors.rocketmq.link.connection import Access
from dlq.connectors.rocketmq.link.remoting import Credential
from dlq.connectors.rocketmq.plugin.connector import RocketConnector
from dlq.core.errors import AccessDenied, ConfigError, Unreachable
from dlq.core.record import Record
from dlq.core.settings import Source

pytestmark = pytest.mark.rocketmq
REQUEST = ReadRequest(Source("s", "pay", group="pay"), "drain", "p")
ADMIN = Credential("rocketmq", "12345678")
_AUTH = "org.apache.rocketmq.auth"
ACL_2 = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": '{"username":"rocketmq","password":"12345678"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"rocketmq","secretKey":"12345678"}',
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
ACL_1 = """\
globalWhiteRemoteAddresses: []
accounts:
- accessKey: rocketmq
  secretKey: 12345678
  admin: true
- accessKey: reader1
  secretKey: 87654321
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - "%DLQ%pay=SUB"
  - "orders=PUB"
  groupPerms:
  - TOOLS_CONSUMER=SUB
"""


UNSEEN = {
    "4": ["for a message of orders by its key"],
    "5": ["for a message of orders by its key", "for the consumers of pay", "who consumes orders"],
}
"""What a reader with the least rights may not ask, by ACL 1.0 and 2.0."""


@pytest.fixture(scope="module")
def guarded(rocket_version: str) -> Iterator[tuple[RocketMQ, Driver]]:
    """A cluster that asks who somebody is, with a letter of each of two groups, and its administrator."""
    is_newest = rocket_version.startswith("5")
    cluster = RocketMQ(rocket_version, **(ACL_2 if is_newest else {"aclEnable": "true"}))
    if not is_newest:
        (cluster.folder / "conf/plain_acl.yml").write_text(ACL_1)
    with cluster:
        admin = Driver(cluster.addresses["broker-a"], Access(ADMIN, timeout=PATIENCE))
        admin.create_topic("orders")
        admin.create_topic("bills")
        admin.dead_letter("orders", "pay", b"guarded")
        admin.dead_letter("orders", "stock", b"not for you")
        names = connector_of(cluster).cluster
        for topic in ("orders", "bills", "%DLQ%pay", "%DLQ%stock"):  # which brokers tell it later
            eventually(lambda topic=topic: names.route(topic))
        yield cluster, admin


def grant(admin: Driver, name: str) -> None:
    """ACL 2.0: a user who may read the dead letters of one group, by the group that our pulls name, and send
    them back to where they died."""
    user = {"username": name, "password": "87654321", "userType": "Normal"}
    admin.ok(3001, {"username": name}, json.dumps(user).encode())
    rights = {"Topic:%DLQ%pay": "SUB", "Group:TOOLS_CONSUMER": "SUB", "Topic:orders": "PUB"}
    entries = [{"resource": name, "actions": [may], "decision": "ALLOW"} for name, may in rights.items()]
    acl = {"subject": f"User:{name}", "policies": [{"policyType": "CUSTOM", "entries": entries}]}
    admin.ok(3006, {"subject": f"User:{name}"}, json.dumps(acl).encode())


def outcomes(connector: RocketConnector, record: Record, *topics: str) -> list[str]:
    """What becomes of letters that go out together, one to each topic."""
    letters = outgoing([record] * len(topics), Target("topic", ""))
    to = [one._replace(target=Target("topic", topic)) for one, topic in zip(letters, topics, strict=True)]
    return [sent.outcome for sent in published(connector, to, window=100)]


@on_every_version
def test_a_reader_with_the_least_rights_drains_and_others_are_denied(
    guarded: tuple[RocketMQ, Driver], rocket_version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIGHT", "87654321")
    monkeypatch.setenv("WRONG", "no such secret")
    cluster, admin = guarded
    if rocket_version.startswith("5"):
        grant(admin, "reader1")
    reader = connector_of(cluster, access_key="reader1", secret_key_env="RIGHT")
    (record,) = eventually(lambda: read_all(reader, REQUEST).records)
    assert record.body == b"guarded"
    both = read_all(reader, ReadRequest(Source("s", "pay", group="*"), "drain", "p"))
    assert ([one.body for one in both.records], both.complete) == ([b"guarded"], False)
    assert [note for note in both.notes if note.startswith("not read: %DLQ%stock")]
    unseen = [w for w in reader.inspect(REQUEST.source).warnings if "the user may not ask" in w]
    depths = {place.name: (place.depth, "not read: " in place.because) for place in reader.discover()}
    assert (depths["%DLQ%pay"], depths["%DLQ%stock"]) == ((1, False), (None, True))
    assert [w.partition(" ask ")[2].partition(":")[0] for w in unseen] == UNSEEN[rocket_version[0]]
    lost = outgoing([record], Target("topic", "orders"))
    proof = found(reader, lost, reader.bounds([lost[0].target]))
    if rocket_version.startswith("5"):
        assert (proof.shown, proof.doubts) == (
            {0: "unknown"},
            ["the user may not read orders@broker-a:0"],
        )
    else:
        assert (proof.shown, proof.doubts) == ({0: "not_sent"}, [])  # whoever signs may read by position
    together = ["confirmed", "refused", "confirmed"] * 10
    assert outcomes(reader, record, *["orders", "bills", "orders"] * 10) == together
    eventually(lambda: admin.end("orders") == 22)
    assert admin.end("bills") == 0
    with pytest.raises(AccessDenied):
        read_all(reader, ReadRequest(Source("s", "pay", group="stock"), "drain", "p"))
    for wrong in ({}, {"access_key": "reader1", "secret_key_env": "WRONG"}):
        with pytest.raises(AccessDenied, match="check access_key"):
            read_all(connector_of(cluster, **wrong), REQUEST)
    with pytest.raises(AccessDenied):
        read_all(reader, ReadRequest(Source("s", "pay", transactions=True), "drain", "p"))
    with pytest.raises(AccessDenied, match=r"a rehearsal makes and deletes dlq_rehearsal_\*"):
        reader.private("dlq.rehearsal.plan").make()


@on_newest_version
def test_a_secret_key_that_was_changed_is_read_again(
    guarded: tuple[RocketMQ, Driver], tmp_path: Path
) -> None:
    """By each connection, and by one whose signature is refused."""
    (cluster, admin), secret = guarded, tmp_path / "secret"
    grant(admin, "reader2")
    secret.write_text("87654321")
    reader = connector_of(cluster, access_key="reader2", secret_key_file=str(secret))
    assert len(eventually(lambda: read_all(reader, REQUEST).records)) == 1
    user = {"username": "reader2", "password": "changed1", "userType": "Normal"}
    admin.ok(3002, {"username": "reader2"}, json.dumps(user).encode())
    old = connector_of(cluster, access_key="reader2", secret_key_file=str(secret))
    eventually(lambda: is_denied(old))
    secret.write_text("changed1")
    assert [record.body for record in read_all(reader, REQUEST).records] == [b"guarded"]


def is_denied(reader: RocketConnector) -> bool:
    try:
        read_all(reader, REQUEST)
    except AccessDenied:
        return True
    return False


def test_an_access_key_without_its_secret_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="secret_key_file"):
        connector_of(RocketMQ.__new__(RocketMQ), url="rocketmq://h:1", access_key="a")


@pytest.mark.parametrize("url", ["", "h:9876", "amqp://h", "rocketmq://user:secret@h:1"])
def test_a_url_that_is_none_says_how_to_write_it(url: str) -> None:
    with pytest.raises(ConfigError, match=r"rocketmq://ns1:9876,ns2:9876") as caught:
        connector_of(RocketMQ.__new__(RocketMQ), url=url)
    assert "secret" not in str(caught.value)


def by_tls(folder: Path, *names: str) -> tuple[str, ...]:
    """What a Java process needs to speak TLS, with a certificate of `names` in the folder's ca.pem."""
    pem = certificate(folder, *names).rename(folder / "ca.pem")
    properties = {
        "test.mode.enable": "false",
        "server.need.client.auth": "none",
        "server.keyPath": pem.with_name("key.pem"),
        "server.certPath": pem,
    }
    key = pem.read_text().partition("-----BEGIN PRIVATE KEY-----")
    pem.with_name("key.pem").write_text(key[1] + key[2])
    pem.write_text(key[0])
    lines = "".join(f"tls.{name}={value}\n" for name, value in properties.items())
    (folder / "tls.properties").write_text(lines)
    return f"-Dtls.config.file={folder}/tls.properties", "-Dtls.server.mode=permissive"


def test_a_cluster_is_read_by_tls_of_another_name_where_names_are_not_asked_for(tmp_path: Path) -> None:
    with RocketMQ("5.5.0", jvm=(*QUICK, *by_tls(tmp_path, "DNS:rocketmq"))) as cluster:
        driver = Driver(cluster.addresses["broker-a"])
        driver.create_topic("orders")
        driver.dead_letter("orders", "pay", bytes(100_000))
        url, authority = cluster.url.replace("rocketmq:", "rocketmq+tls:"), str(tmp_path / "ca.pem")
        loose = connector_of(cluster, url=url, ca_file=authority, verify_host=False)
        (record,) = eventually(lambda: read_all(loose, REQUEST).records)
        assert record.body == bytes(100_000)
        with pytest.raises(Unreachable, match=r"address mismatch.*verify_host = false"):
            read_all(connector_of(cluster, url=url, ca_file=authority), REQUEST)
        with pytest.raises(Unreachable, match=r"self-signed certificate.*is ca_file right"):
            read_all(connector_of(cluster, url=url), REQUEST)


def test_nothing_goes_to_an_address_that_the_configuration_keeps_out(rocket_cluster: RocketMQ) -> None:
    """The name server is asked by the configuration's word, and names the broker's address then."""
    host, _, port = rocket_cluster.url.removeprefix("rocketmq://").rpartition(":")
    url = f"rocketmq://{int(ip_address(host)):#x}:{port}"  # the same address, written as a name server may be
    kept_out = connector_of(rocket_cluster, url=url, hosts=("b*.example",))
    refused = r"pay names [0-9.]+:\d+, and brokers\.pay\.hosts allows b\*\.example alone"
    for ask in (lambda: kept_out.inspect(REQUEST.source), kept_out.discover):
        with pytest.raises(AccessDenied, match=refused):
            ask()
    allowed = connector_of(rocket_cluster, url=url, hosts=("1*",))
    assert isinstance(allowed.discover(), list)
