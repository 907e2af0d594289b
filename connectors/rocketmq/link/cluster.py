"""The cluster behind a `rocketmq://` URL: name servers, masters, routes, and refusals in our words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dlq.connectors import deadline
from dlq.connectors.local import credentials
from dlq.connectors.net.tls import client_context
from dlq.connectors.rocketmq.link import lenient_json
from dlq.connectors.rocketmq.link.connection import Access, Link
from dlq.connectors.rocketmq.link.remoting import (
    Credential,
    Frame,
    RequestCode,
    ResponseCode,
    long,
    understood,
    version_name,
)
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.core.errors import AccessDenied, BrokerError, ConfigError, ConnectionLost, NotFound, Unreachable
from dlq.core.text import for_terminal
from dlq.core.values import units
from dlq.core.values.hosts import host_of, why_not

_SCHEMES = {"rocketmq": False, "rocketmq+tls": True}
_PORT = "9876"
_MOST_QUEUES, _MOST_MASTERS = 2**15, 1000
"""Of a topic on one broker, whose usual number is 8 (defaultTopicQueueNums), and of a cluster. All of them
are asked."""
_MOST_OF_A_TOPIC = 2**16
"""Queues on all brokers."""
_UNTRUE = "that cannot be true"


class Queues(NamedTuple):
    """A topic on one broker. `permission` has the bits 4 (read) and 2 (write)."""

    readable: int
    writable: int
    permission: int
    hosted: Sequence[int] | None = None
    """Of a static topic (5.x), whose queues are numbered over all brokers: those that clients find here."""

    @property
    def most(self) -> int:
        """No more are asked."""
        return max(self.readable, self.writable, len(self.hosted or ()))

    @property
    def to_read(self) -> Sequence[int]:
        """The numbers by which clients read, and commit offsets."""
        return range(self.readable) if self.hosted is None else self.hosted

    @property
    def to_write(self) -> Sequence[int]:
        """The numbers by which letters are sent. A broker takes messages for more queues than consumers read
        (AbstractSendMessageProcessor.msgCheck, MQClientInstance.topicRouteData2TopicSubscribeInfo)."""
        if not self.permission & 4:
            return ()
        return range(min(self.readable, self.writable)) if self.hosted is None else self.hosted


class Cluster:
    """Connections to the name servers and the masters, made when they are needed and kept."""

    def __init__(self, broker: RocketBroker) -> None:
        """Reads the secrets; connects to nothing yet. Raises ConfigError."""
        self.name, self._broker = broker.name, broker
        self._name_servers, tls = _addresses(broker)
        self._named, self._hosts = [*map(host_of, self._name_servers)], broker.hosts
        self._access = Access(
            _credential(broker),
            units.seconds(broker.timeout),
            client_context(broker, broker.verify_host) if tls else None,
        )
        self.timeout = self._access.timeout
        self._links: dict[str, Link] = {}
        self._masters: dict[str, str] = {}
        self.listed: Mapping[str, Sequence[str]] = {}
        """Broker name -> each address that a name server gave its master when `masters` last asked."""
        self.without_master: Sequence[str] = ()
        """Brokers of which slaves alone were registered when `masters` last asked."""
        self.silent: dict[str, BrokerError] = {}
        """Brokers that are registered, and do not answer."""

    @property
    def name_server(self) -> str:
        """The first one's address."""
        return self._name_servers[0]

    @property
    def signs(self) -> bool:
        """Whether requests are signed, because an access key is configured."""
        return self._access.signs

    def masters(self, refresh: bool = False) -> Mapping[str, str]:
        """Broker name -> address of its master, over all name servers.

        Raises Unreachable when no name server answers, or none knows a master.
        """
        if refresh or not self._masters:
            answers = self._ask_name_servers(RequestCode.CLUSTER, {})
            with understood(self._name_server):
                tables = [lenient_json.loads(answer.body.decode()) for answer in answers]
                known = [entry for table in tables for entry in _masters(table)]
            found = {name: master for name, master in known if master is not None}
            if len(found) > _MOST_MASTERS:
                raise BrokerError(f"{self._name_server} says that it has {len(found)} masters: {_UNTRUE}")
            if not found:
                raise Unreachable(f"no RocketMQ broker is registered at {', '.join(self._name_servers)}")
            self._masters = dict(sorted(found.items()))
            self.listed = {name: sorted({at for one, at in known if one == name and at}) for name in found}
            self.without_master = sorted({name for name, _ in known} - found.keys())
        return self._masters

    def leave_out_silent(self) -> None:
        """Count the masters that cannot be reached, or do not answer, as down from now until `masters` is
        asked to refresh: `silent` says why. Raises the first reason where no other is left."""
        self.silent = {}
        for node in [*self.masters(refresh=True)]:
            try:
                self.version(node)
            except (Unreachable, ConnectionLost) as error:
                self.silent[node] = error
        if len(self.silent) == len(self._masters):
            raise next(iter(self.silent.values()))
        self._masters = {node: at for node, at in self._masters.items() if node not in self.silent}

    def topics(self) -> set[str]:
        """Return all topics that the name servers know; empty when they keep the list to themselves."""
        answers = self._ask_name_servers(RequestCode.ALL_TOPICS, {})
        with understood(self._name_server):
            return {str(topic) for answer in answers for topic in answer.document().get("topicList") or ()}

    def route(self, topic: str) -> Mapping[str, Queues]:
        """Broker name -> its queues of `topic`; empty when the name servers know no route."""
        found: dict[str, Queues] = {}
        answers = self._ask_name_servers(RequestCode.ROUTE, {"topic": topic, "acceptStandardJsonOnly": True})
        with understood(self._name_server):
            for answer in answers:
                document = answer.document()
                static = document.get("topicQueueMappingByBroker") or {}
                for data in document.get("queueDatas") or ():
                    read, write, permission = (
                        long(data[name]) for name in ("readQueueNums", "writeQueueNums", "perm")
                    )
                    hosted = static.get(data["brokerName"], {}).get("currIdMap")
                    ids = None if hosted is None else sorted(map(long, hosted))
                    found[str(data["brokerName"])] = Queues(read, write, permission, ids)
        for node, queues in found.items():
            if queues.most > _MOST_QUEUES:
                number = f"{topic} has {queues.most} queues on {for_terminal(node)[:200]}"
                raise BrokerError(f"{self._name_server} says that {number}: {_UNTRUE}")
        if (total := sum(queues.most for queues in found.values())) > _MOST_OF_A_TOPIC:
            raise BrokerError(f"{self._name_server} says that {topic} has {total} queues: {_UNTRUE}")
        return dict(sorted(found.items()))

    def forget_route(self, topic: str) -> None:
        """Let the name servers forget a topic that its brokers have deleted."""
        self._ask_name_servers(RequestCode.DELETE_ROUTE, {"topic": topic})

    def groups_of(self, topic: str) -> set[str] | None:
        """Return the groups that consume `topic` now, or have committed an offset of it; None where nobody
        tells."""
        masters = self.masters()
        nodes = [node for node in self.route(topic) if node in masters]
        return self._collect(nodes, RequestCode.TOPIC_GROUPS, {"topic": topic}, "groupList")

    def attributes(self, topic: str) -> Mapping[str, str] | None:
        """Return what brokers of 5.x know a topic by, all together; where they differ a value holds several
        words. Those before 5.0 know none. None where one does not tell. Raises BrokerError."""
        masters, found = self.masters(), dict[str, str]()
        for node in self.route(topic):
            if node not in masters:
                continue
            answer = self.call(node, RequestCode.TOPIC_CONFIG, {"topic": topic})
            if answer.code not in (ResponseCode.OK, ResponseCode.NOT_SUPPORTED, ResponseCode.NO_TOPIC):
                return None
            with understood(node):
                for name, value in (answer.document().get("attributes") or {}).items():
                    found[name] = " ".join(dict.fromkeys([*found.get(name, "").split(), str(value)]))
        return found

    def topics_of(self, group: str) -> set[str]:
        """Return the topics that `group` has committed an offset of, as far as brokers tell: 4.9 does not."""
        return self._collect(self.masters(), RequestCode.GROUP_TOPICS, {"group": group}, "topicList") or set()

    def _collect(
        self, nodes: Iterable[str], code: int, fields: Mapping[str, object], name: str
    ) -> set[str] | None:
        """Return what brokers list under `name`, all together; None where one does not tell."""
        answers = [self.call(node, code, fields) for node in nodes]
        if not answers or any(answer.code != ResponseCode.OK for answer in answers):
            return None
        with understood(f"a broker of {self.name}"):
            return {str(one) for answer in answers for one in answer.document().get(name) or ()}

    def link(self, node: str) -> Link:
        """Return the connection to the master of `node`, a new one when the last has ended."""
        deadline.check(self.name)
        masters = self.masters()
        if node not in masters:
            masters = self.masters(refresh=True)
        if node not in masters:
            raise Unreachable(f"no master of {node} is registered at {', '.join(self._name_servers)}")
        return self._link(masters[node])

    def new_link(self, node: str, brief: bool = False) -> Link:
        """Return a connection to the master of `node` for one use of its own. `brief`: see `FrameReader`."""
        known = self.link(node)
        return Link(known.address, self._access_now(), brief, known.peer.named_by)

    def call(self, node: str, code: int, fields: Mapping[str, object]) -> Frame:
        """Ask the master of `node` one question, and return the answer, whatever its code.

        Asked again on a new connection when the old one had ended: not for what must not happen twice.
        """
        link = self.link(node)
        try:
            answer = link.call(code, fields)
        except ConnectionLost:
            self.masters(refresh=True)
            return self.link(node).call(code, fields)
        if "signature" in answer.remark.lower() and self._has_another_key(link):
            answer = self.link(node).call(code, fields)
        return answer

    def _has_another_key(self, link: Link) -> bool:
        """Return whether the secret key is another than this connection signs with, which is ended then."""
        credentials.forget(self._broker)
        if self._access_now() == link.access:
            return False
        link.close()
        return True

    def ok(self, node: str, code: int, fields: Mapping[str, object]) -> Frame:
        """Call a node like `call`; raises BrokerError unless the answer's code is 0."""
        answer = self.call(node, code, fields)
        if answer.code != ResponseCode.OK:
            raise refusal(node, answer)
        return answer

    def version(self, node: str) -> str:
        """Return the release of `node`, from the version that its answers carry."""
        answer = self.call(node, RequestCode.MAX_OFFSET, {"topic": "TBW102", "queueId": 0})
        return version_name(answer.version)

    def configuration(self, node: str) -> Mapping[str, str]:
        """Return the broker's configuration, or nothing when we may not read it."""
        answer = self.call(node, RequestCode.BROKER_CONFIG, {})
        with understood(node):
            lines = answer.body.decode().splitlines() if answer.code == ResponseCode.OK else []
        return dict(line.split("=", 1) for line in lines if "=" in line)

    @property
    def _name_server(self) -> str:
        return f"a name server of {self.name}"

    def close(self) -> None:
        """Let go of all connections. Never raises."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _link(self, address: str) -> Link:
        known = self._links.get(address)
        if known is None or known.is_over():
            if refused := why_not(address, self._named, self._hosts, self.name):
                raise AccessDenied(refused)
            own = address in self._name_servers
            named_by = f"brokers.{self.name}.url" if own else f"a name server ({self._name_servers[0]})"
            self._links[address] = Link(address, self._access_now(), named_by=named_by)
        return self._links[address]

    def _access_now(self) -> Access:
        """Return the access for a new connection: the secret key may be another one by now."""
        return replace(self._access, credential=_credential(self._broker))

    def _ask_name_servers(self, code: int, fields: Mapping[str, object]) -> list[Frame]:
        """Return the answers of all name servers that answer; brokers may be registered at some only."""
        deadline.check(self.name)
        answers, problems = [], []
        for address in self._name_servers:
            try:
                answers.append(self._link(address).call(code, fields))
            except (Unreachable, ConnectionLost) as error:
                problems.append(str(error))
        if not answers:
            raise Unreachable(f"no name server of {self.name} answers: {'; '.join(problems)}")
        return answers


def refusal(node: str, answer: Frame) -> BrokerError:
    """Return a broker's no, as our error. Codes 16 and 1 mean several things: the remark decides."""
    remark = " ".join(answer.remark.split())[:300]
    said = f"{node} refused with code {answer.code}: {remark or 'no remark'}"
    if answer.code == ResponseCode.NO_PERMISSION or "AclException" in remark or "Signature" in remark:
        return AccessDenied(f"{said}{_hint(remark)}")
    if answer.code in (ResponseCode.NO_TOPIC, ResponseCode.NO_GROUP):
        return NotFound(said)
    return BrokerError(said)


def _hint(remark: str) -> str:
    if "is forbidden" in remark:
        return " (the topic's or broker's permission bits, not the user's rights)"
    return (
        " (check access_key, the secret key, in which a blank at either end counts, and the user's rights on "
        "the topic and on group TOOLS_CONSUMER)"
    )


def _masters(table: Any) -> Iterator[tuple[str, str | None]]:
    """Yield each broker with the address of its master; None where slaves alone are registered."""
    brokers = table.get("brokerAddrTable") or {} if isinstance(table, dict) else {}
    for name, data in brokers.items():
        address = (data.get("brokerAddrs") or {}).get("0")
        yield str(name), None if address is None else str(address)


def _addresses(broker: RocketBroker) -> tuple[list[str], bool]:
    parts = urlsplit(broker.url)
    if parts.scheme not in _SCHEMES or not parts.netloc or "@" in parts.netloc:
        raise ConfigError(
            f"brokers.{broker.name}.url: write it like rocketmq://ns1:9876,ns2:9876 (or rocketmq+tls://…)"
        )
    hosts = [host.strip() for host in parts.netloc.split(",") if host.strip()]
    with_port = [host if ":" in host.rpartition("]")[2] else f"{host}:{_PORT}" for host in hosts]
    return with_port, _SCHEMES[parts.scheme] or broker.ca_file is not None


def _credential(broker: RocketBroker) -> Credential | None:
    if broker.access_key is None:
        return None
    place = f"brokers.{broker.name}"
    if broker.secret_key_file is not None:
        return Credential(
            broker.access_key, credentials.from_file(f"{place}.secret_key_file", broker.secret_key_file)
        )
    if broker.secret_key_env is not None:
        return Credential(
            broker.access_key, credentials.from_environment(f"{place}.secret_key_env", broker.secret_key_env)
        )
    secret = credentials.password(broker)
    if secret is None:
        raise ConfigError(f"{place} has an access_key; add secret_key_file or secret_key_env")
    return Credential(broker.access_key, secret)
