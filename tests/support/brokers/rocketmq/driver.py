"""What tests do to a RocketMQ broker: make topics, send, send back, end transactions, look."""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum

from support.waiting import PATIENCE, eventually

from dlq.connectors.rocketmq.link.connection import Access, Link
from dlq.connectors.rocketmq.link.message import StoredMessage, decode, encode_properties, parse_properties
from dlq.connectors.rocketmq.link.remoting import Frame, RequestCode
from dlq.connectors.rocketmq.read.queue import MessageQueue, pull_fields
from dlq.core.headers.rocketmq_topics import HALF, OP_TOPIC

_counter = itertools.count()


class AdminCode(IntEnum):
    """Requests that only clients and operators make (remoting/protocol/RequestCode)."""

    COMMIT_OFFSET = 15
    CREATE_TOPIC = 17
    SET_BROKER_CONFIG = 25
    HEARTBEAT = 34
    SEND_BACK = 36
    END_TRANSACTION = 37
    DELETE_TOPIC = 215
    CREATE_GROUP = 200


OP_BATCH_INTERVAL_MS = 100
"""Of the brokers of the tests; a reading waits for so long."""
CHECK_MAX = 2
"""Of the same: a half message is discarded instead of the third check."""


def unique_key() -> str:
    """32 hex digits in the layout of the Java client: address, pid, class loader, time, counter."""
    now = int(time.time() * 1000) & 0xFFFFFFFF
    return f"7F000001{os.getpid() & 0xFFFF:04X}0014AE5D{now:08X}{next(_counter) & 0xFFFF:04X}0000"[:32]


def _where_it_lies(message: StoredMessage) -> str:
    """The broker's own message id (MessageDecoder.createMessageId)."""
    return (message.store_host + message.commit_log_offset.to_bytes(8, "big")).hex().upper()


class Driver:
    """One connection to one broker."""

    def __init__(self, address: str, access: Access | None = None) -> None:
        self.link = Link(address, access or Access(timeout=PATIENCE))

    def close(self) -> None:
        self.link.close()

    def ok(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Frame:
        """A request that must succeed."""
        answer = self.link.call(code, fields, body)
        assert answer.code == 0, (code, answer.code, answer.remark)
        return answer

    def create_topic(
        self,
        topic: str,
        queues: int = 1,
        permission: int = 6,
        attributes: str = "",
        readable: int | None = None,
    ) -> None:
        """Returns when the broker has it so: 4.9 answers before."""
        read = queues if readable is None else readable
        numbers = {"readQueueNums": read, "writeQueueNums": queues, "perm": permission, "topicSysFlag": 0}
        kind = {"topicFilterType": "SINGLE_TAG", "order": False, "defaultTopic": "TBW102"}
        self.ok(
            AdminCode.CREATE_TOPIC,
            {"topic": topic, **numbers, **kind, **({"attributes": attributes} if attributes else {})},
        )
        eventually(lambda: numbers.items() <= self._topics().get(topic, {}).items())

    def _topics(self) -> dict[str, dict[str, object]]:
        """The settings of all topics."""
        return dict(self.ok(RequestCode.TOPIC_CONFIGS, {}).document()["topicConfigTable"])

    def delete_topic(self, topic: str) -> None:
        """5.5 then stumbles over the timers that it lacks (timerWheelEnable=false), and says so."""
        self.link.call(AdminCode.DELETE_TOPIC, {"topic": topic})
        eventually(lambda: self.link.call(RequestCode.TOPIC_STATS, {"topic": topic}).code == 17)

    def create_group(self, group: str, retries: int) -> None:
        """A consumer group whose messages die after so many retries."""
        settings = {"groupName": group, "retryMaxTimes": retries, "retryQueueNums": 1, "consumeEnable": True}
        self.ok(AdminCode.CREATE_GROUP, {}, json.dumps(settings).encode())

    def read_retries(self, group: str) -> None:
        """What is left on the broker of a push consumer: the retry topic, and an offset of it."""
        self.create_topic(f"%RETRY%{group}")
        self.create_group(group, retries=16)
        self.commit_offset(group, f"%RETRY%{group}")

    def consume(self, group: str, topic: str, mode: str = "CLUSTERING") -> None:
        """What a push consumer says of itself every 30 seconds, on this connection."""
        subscription = {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
        consumer = {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": mode,
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
        }  # fmt: skip
        said = {"clientID": f"test@{group}", "producerDataSet": [], "consumerDataSet": [consumer]}
        self.ok(AdminCode.HEARTBEAT, {}, json.dumps(said).encode())

    def commit_offset(self, group: str, topic: str, offset: int = 0) -> None:
        """What every consumer leaves on the broker."""
        where = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}
        self.ok(AdminCode.COMMIT_OFFSET, where)

    def set(self, setting: str, value: object) -> None:
        """Change the broker's configuration."""
        self.ok(AdminCode.SET_BROKER_CONFIG, {}, f"{setting}={value}\n".encode())

    def send_fields(self, topic: str, properties: Mapping[str, str], **changed: object) -> dict[str, object]:
        fields = {
            "a": "tests", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": int(time.time() * 1000),
            "h": 0, "i": encode_properties(properties).decode(), "j": 0, "k": False, "m": False,
        }  # fmt: skip
        return {**fields, **changed}

    def send(
        self, topic: str, body: bytes, properties: Mapping[str, str] | None = None, **changed: object
    ) -> Frame:
        """One message; fields by their short names: e queue, f sysFlag, g born, h flag, j times."""
        return self.ok(RequestCode.SEND_V2, self.send_fields(topic, properties or {}, **changed), body)

    def send_many(
        self,
        topic: str,
        count: int,
        make: Callable[[int], tuple[bytes, Mapping[str, str]]],
        **changed: object,
    ) -> None:
        """Pipelined; stored in no particular order. `changed`: see `send`."""
        waiting = 0
        for i in range(count):
            body, properties = make(i)
            self.link.ask(RequestCode.SEND_V2, self.send_fields(topic, properties, **changed), body)
            waiting += 1
            if waiting >= 200:
                waiting -= self._confirmed()
        while waiting:
            waiting -= self._confirmed()

    def _confirmed(self) -> int:
        answer = self.link.receive()
        assert answer is not None
        assert answer.code == 0, answer.remark
        return 1

    def end(self, topic: str, queue: int = 0) -> int:
        """The queue's highest offset plus one."""
        return int(self.ok(RequestCode.MAX_OFFSET, {"topic": topic, "queueId": queue}).fields["offset"])

    def messages(self, topic: str, queue: int = 0, start: int = 0) -> list[StoredMessage]:
        """What lies in a queue, read one pull at a time; nothing for a topic that is not there."""
        found: list[StoredMessage] = []
        while True:
            answer = self.link.call(RequestCode.PULL, pull_fields(MessageQueue(topic, "", queue), start, 32))
            if answer.code != 0:
                return found
            found += decode(answer.body)
            start = int(answer.fields["nextBeginOffset"])

    def newest(self, topic: str, queue: int = 0, count: int = 1) -> list[StoredMessage]:
        """The last messages of a queue, as soon as there are so many."""
        return eventually(
            lambda: self.messages(topic, queue)[-count:] if self.end(topic, queue) >= count else []
        )

    def copies(self, key: str) -> list[StoredMessage]:
        """Those of a half message in the half topic: each check puts one more there."""
        return [m for m in self.messages(HALF) if parse_properties(m.properties).get("UNIQ_KEY") == key]

    def send_back(
        self, message: StoredMessage, group: str, delay: int = -1, maximum: int | None = None
    ) -> Frame:
        """What a consumer does with a message it failed on; delay -1: to the dead letters at once."""
        fields = {
            "offset": message.commit_log_offset, "group": group, "delayLevel": delay,
            "originTopic": message.topic, "originMsgId": _where_it_lies(message), "unitMode": False,
        }  # fmt: skip
        return self.ok(
            AdminCode.SEND_BACK, {**fields, **({} if maximum is None else {"maxReconsumeTimes": maximum})}
        )

    def dead_letter(
        self, topic: str, group: str, body: bytes, properties: Mapping[str, str] | None = None
    ) -> None:
        """Send to `topic`, fail at once for good in `group`."""
        before = self.end(topic)
        self.send(topic, body, {"UNIQ_KEY": unique_key(), **(properties or {})})
        eventually(lambda: self.end(topic) > before)
        (message,) = self.messages(topic, start=before)[:1]
        dead = self.end(f"%DLQ%{group}")
        self.send_back(message, group)
        eventually(lambda: self.end(f"%DLQ%{group}") > dead)

    def half(
        self, topic: str, body: bytes, properties: Mapping[str, str] | None = None, **changed: object
    ) -> "Half":
        """The first phase of a transaction."""
        key = unique_key()
        own = {"TRAN_MSG": "true", "PGROUP": "tx-producers", "UNIQ_KEY": key}
        answer = self.send(
            topic, body, {**own, **(properties or {})}, **{"f": 4, "a": "tx-producers", **changed}
        )
        return Half(key, int(answer.fields["queueOffset"]), int(answer.fields["msgId"][-16:], 16))

    def finish(self, half: "Half", commit: bool) -> None:
        """The second phase, on the copy that `half` names."""
        fields = {
            "producerGroup": "tx-producers", "tranStateTableOffset": half.offset,
            "commitLogOffset": half.position, "commitOrRollback": 8 if commit else 12,
            "fromTransactionCheck": False, "msgId": half.key, "transactionId": half.key,
        }  # fmt: skip
        self.ok(AdminCode.END_TRANSACTION, fields)

    def finish_at_once(self, half: "Half", commit: bool) -> None:
        """The same on a broker that goes on to be used; returns when the op record is written."""
        written = self.end(OP_TOPIC)
        with self.gathering_nothing():
            self.finish(half, commit)
            eventually(lambda: self.end(OP_TOPIC) > written)

    @contextmanager
    def gathering_nothing(self) -> Iterator[None]:
        """Transactions end meanwhile on a broker that goes on to be used.

        With 5.5's usual settings TransactionalMessageServiceImpl.batchSendOpMessage lets its thread spin on a
        whole processor as soon as nothing has ended for an interval. It reads them only when it wakes: with
        these it writes without gathering, and sleeps until the next transaction ends.
        """
        self.set("transactionOpBatchInterval", 3_600_000)
        self.set("transactionOpMsgMaxSize", 1)
        try:
            yield
        finally:
            self.set("transactionOpMsgMaxSize", 4096)
            self.set("transactionOpBatchInterval", OP_BATCH_INTERVAL_MS)

    @contextmanager
    def asking_for_ever(self) -> Iterator[None]:
        """No check is the last meanwhile: a producer on a loaded machine may take long to answer."""
        self.set("transactionCheckMax", 1_000_000)
        try:
            yield
        finally:
            self.set("transactionCheckMax", CHECK_MAX)


class Half:
    """A half message: its unique key, its offset in the half topic, its position in the commit log."""

    def __init__(self, key: str, offset: int, position: int) -> None:
        self.key, self.offset, self.position = key, offset, position
