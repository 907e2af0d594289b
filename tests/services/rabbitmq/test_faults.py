"""Whatever breaks a drain, the next one ends with every message archived exactly once."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.archives import letters_in
from support.brokers.rabbitmq.amqp10 import send_some
from support.brokers.rabbitmq.fixtures import (
    KINDS,
    PASSWORD_VARIABLE,
    Rabbit,
    on_private_nodes,
    on_rabbitmq_3,
    on_rabbitmq_4,
)
from support.servers.cutter import Cutter
from support.waiting import PATIENCE, eventually
from support.wire_builders import configure

from dlq.archive.storage.store import LocalStore

each_kind = pytest.mark.parametrize("kind", KINDS)


@dataclass
class Drain:
    """`dlq pull --mode drain` of one queue into one archive."""

    rabbit: Rabbit
    folder: Path
    queue: str
    more: str = ""
    """Makes a pattern of its name."""
    managed: bool = False
    """Whether its kind and its limits can be seen."""

    def configure(self, url: str | None = None) -> None:
        url = url or self.rabbit.broker().url
        broker = f'kind = "rabbitmq"\nurl = "{url}"\npassword_env = "{PASSWORD_VARIABLE}"'
        if self.managed:
            broker += f'\nmanagement_url = "{self.rabbit.node.http}"'
        configure(self.folder, broker, f'queue = "{self.queue}{self.more}"')

    def start(self, *command: str, **options: Any) -> "subprocess.Popen[str] | preloaded.Running":
        words = ("pull", "--mode", "drain", "-o", "json")
        if not command and not options:
            return preloaded.start(words, self.folder)
        words = command or (preloaded.INSTALLED, *words)
        pipe = subprocess.PIPE
        return subprocess.Popen(words, cwd=self.folder, stdout=pipe, stderr=pipe, text=True, **options)

    def run(self, *command: str, **options: Any) -> tuple[int, str, str]:
        """(exit code, stdout, stderr) of a whole run."""
        running = self.start(*command, **options)
        out, err = running.communicate(timeout=PATIENCE)
        assert "Traceback" not in err, err
        return running.returncode, out, err

    def wait_for_a_manifest(self, running: "subprocess.Popen[str] | preloaded.Running") -> None:
        while not list((self.folder / "archive").glob("manifests/*.json")):
            assert running.poll() is None, running.communicate()
            time.sleep(0.005)

    def archived(self) -> Counter[bytes]:
        """How often each body is in the archive."""
        return Counter(one.body for one in letters_in(LocalStore(str(self.folder / "archive"))))

    def finish(self, number: int) -> None:
        """The second pull, and what must be true after it."""
        self.rabbit.wait_until_nobody_holds_any()
        code, out, err = self.run()
        said = [line for line in err.splitlines() if "without an answer" not in line]  # a busy machine
        assert (code, said) == (0, []), (out, err)
        archived = self.archived()
        assert len(archived) == number
        assert set(archived.values()) == {1}
        assert self.rabbit.depth(self.queue) == 0


@pytest.fixture
def drain(rabbit: Rabbit, tmp_path: Path) -> Callable[[int, str], Drain]:
    def make(number: int, kind: str = "classic") -> Drain:
        made = Drain(rabbit, tmp_path, rabbit.queue(kind))
        rabbit.fill(made.queue, number - 1, b"letter %d " + b"x" * 500)
        rabbit.publish(made.queue, [b"confirmed, so all before it are on disk"])
        made.configure()
        return made

    return make


Drains = Callable[..., Drain]


@on_private_nodes
@each_kind
def test_a_pull_goes_on_after_its_broker_was_killed(drain: Drains, rabbit: Rabbit, kind: str) -> None:
    pull = drain(12_000, kind)
    rabbit.node.write_to_disk()
    running = pull.start()
    pull.wait_for_a_manifest(running)
    rabbit.node.kill()
    rabbit.node.start()
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode in (0, 3, 4), err  # the last where it starts for longer than the pull waits
    assert "Traceback" not in err
    rabbit.channel = rabbit.connect()
    pull.finish(12_000)


@contextmanager
def through_a_cutter(pull: Drain) -> Iterator[Cutter]:
    """Its connections can be cut within the block."""
    url = pull.rabbit.broker().url
    address = url.partition("@")[2].partition("/")[0]
    with Cutter(address) as cutter:
        pull.configure(url.replace(address, cutter.address))
        yield cutter
    pull.configure()


@on_rabbitmq_4
def test_the_connection_is_cut_at_every_step(drain: Drains, rabbit: Rabbit) -> None:
    pull = drain(2000)
    with through_a_cutter(pull) as cutter:
        for answers in (0, 600, 1000, 100_000):
            cutter.answers = answers
            rabbit.wait_until_nobody_holds_any()
            assert pull.run()[0] in (3, 4)
        cutter.answers = 700_000  # what each connection brings, letter by letter in the end, is kept
        assert pull.run()[0] in (0, 3, 4)
        cutter.answers = 2**62
        for requests in (420, 560, 680):
            cutter.requests = requests
            assert pull.run()[0] in (0, 3, 4)
    pull.finish(2000)


@on_rabbitmq_3
def test_the_consumer_timeout_runs_out(drain: Drains, rabbit: Rabbit) -> None:
    pull = drain(100)
    rabbit.node.evaluate("application:set_env(rabbit,consumer_timeout,500)")
    rabbit.node.evaluate("application:set_env(rabbit,channel_tick_interval,500)")
    try:
        with stopped_at_a_manifest(pull, "before") as running:
            states = "[rabbit_channel:info(Channel, [state]) || Channel <- rabbit_channel:list()]"
            eventually(lambda: "closing" in rabbit.node.evaluate(states))
        _, err = running.communicate(timeout=PATIENCE)
        assert "consumer timeout" in err
        assert "Traceback" not in err, err
        assert running.returncode in (0, 3, 4)
    finally:
        rabbit.node.evaluate("application:set_env(rabbit,consumer_timeout,1800000)")
        rabbit.node.evaluate("application:set_env(rabbit,channel_tick_interval,60000)")
    pull.finish(100)


@on_private_nodes
def test_a_memory_alarm_does_not_stop_a_drain(drain: Drains, rabbit: Rabbit) -> None:
    pull = drain(1000)
    rabbit.node.limit_memory("0.0001")
    try:
        pull.finish(1000)
    finally:
        rabbit.node.limit_memory()


@on_rabbitmq_4
def test_the_disk_is_full(drain: Drains) -> None:
    pull = drain(3000)

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    code, _, err = pull.run(preexec_fn=small_files)
    assert code == 3
    assert "cannot write" in err
    assert err.count("\n") <= 3
    pull.finish(3000)


# A pull in which one function does something before or after its first call.
STEP = """
import os, signal, sys, time
from dlq.archive import manifests
from dlq.archive.storage.store import LocalStore
from dlq.cli.app import main
from dlq.connectors.chain import ChainOfTwo
from dlq.connectors.rabbitmq.amqp091.read import RabbitReading
from dlq.capture import attempt

def broken(function, calls):
    def call(*args, **named):
        calls.append(name)
        first = len(calls) == 1
        if first:
            {before}
        result = function(*args, **named)
        if first:
            {after}
        return result
    return call

owner, name = {place!r}.split(".")
owner = globals()[owner]
setattr(owner, name, broken(getattr(owner, name), []))
sys.argv = ["dlq", "pull", "--mode", "drain", "-o", "json"]
main()
"""
_DIE = "os.kill(os.getpid(), signal.SIGKILL)"


def step(place: str, **what: str) -> tuple[str, str, str]:
    """The command of such a pull."""
    return sys.executable, "-c", STEP.format(**{"place": place, "before": "pass", "after": "pass", **what})


@on_rabbitmq_3
@pytest.mark.parametrize(("place", "when"), [
    ("attempt.commit", "before"), ("manifests.write", "before"), ("manifests.write", "after"),
    ("attempt.commit", "after"), ("RabbitReading.acknowledge", "before"),
    ("RabbitReading.acknowledge", "after"), ("RabbitReading.settled_position", "before"),
    ("RabbitReading.settled_position", "after"), ("manifests.settle", "after"),
])  # fmt: skip
def test_the_pull_is_killed_at_each_step(drain: Drains, place: str, when: str) -> None:
    pull = drain(1200)
    assert pull.run(*step(place, **{when: _DIE}))[0] == -signal.SIGKILL
    pull.finish(1200)


@contextmanager
def stopped_at_a_manifest(pull: Drain, when: str = "after") -> Iterator["subprocess.Popen[str]"]:
    """A pull that stands still where its first manifest is written, and goes on behind the block."""
    running = pull.start(*step("manifests.write", **{when: "os.kill(os.getpid(), signal.SIGSTOP)"}))
    assert isinstance(running, subprocess.Popen)
    os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert running.poll() is None, running.communicate()
    try:
        yield running
    finally:
        running.send_signal(signal.SIGCONT)


@on_rabbitmq_4
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_pull_keeps_what_it_has(drain: Drains, number: signal.Signals) -> None:
    pull = drain(6000)
    with stopped_at_a_manifest(pull) as running:
        running.send_signal(number)
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    pull.finish(6000)


@on_rabbitmq_4
def test_two_pulls_at_once(drain: Drains) -> None:
    pull = drain(6000)
    with stopped_at_a_manifest(pull) as running:
        code, _, busy = pull.run()
    assert code == 7, busy
    assert f"pid {running.pid} on {os.uname().nodename}" in busy
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, err
    assert set(pull.archived().values()) == {1}
    pull.finish(6000)


@on_rabbitmq_4
@each_kind
def test_a_letter_that_0_9_1_cannot_carry_is_drained_by_1_0(drain: Drains, rabbit: Rabbit, kind: str) -> None:
    pull = drain(2, kind)
    send_some(rabbit, pull.queue, 10, poisoned=5)
    rabbit.wait_for(pull.queue, 12)
    code, out, err = pull.run()
    assert code == 0, err
    assert "cannot convert to AMQP 0-9-1: such letters are read by AMQP 1.0" in err
    assert json.loads(out)["sources"][0]["captured"] == 12
    pull.finish(12)


@on_private_nodes
@pytest.mark.parametrize(("end", "code"), [(_DIE, -signal.SIGKILL), ("raise KeyboardInterrupt", 130)])
@pytest.mark.parametrize(("kind", "more"), [("classic", ""), ("quorum", ""), ("classic", "*")])
def test_of_letters_that_are_alike_none_passes_for_one_that_a_pull_has_acknowledged_that_was_ended(
    drain: Drains, rabbit: Rabbit, kind: str, more: str, end: str, code: int
) -> None:
    """None is on its way then, and what comes later is not marked as redelivered."""
    pull = drain(1, kind)
    pull.managed, pull.more = True, more
    pull.configure()
    rabbit.fill(pull.queue, 5000, b"alike")
    rabbit.wait_for_statistics(pull.queue)
    assert pull.run(*step("RabbitReading.acknowledge", after=end))[0] == code
    rabbit.wait_until_nobody_holds_any()
    rabbit.fill(pull.queue, 10, b"alike")
    assert pull.run()[0] == 0
    assert pull.archived()[b"alike"] == 5010
    assert rabbit.depth(pull.queue) == 0


@on_private_nodes
@each_kind
def test_a_node_that_is_restarted_in_order_doubles_nothing(drain: Drains, rabbit: Rabbit, kind: str) -> None:
    """A classic queue of RabbitMQ 4 does not know afterwards what it has delivered."""
    pull = drain(3000, kind)
    rabbit.node.write_to_disk()
    copy = (preloaded.INSTALLED, "pull", "--mode", "copy", "--force")
    assert pull.run(*copy)[0] == 0
    rabbit.wait_until_nobody_holds_any()
    rabbit.node.shut_down()
    rabbit.node.start()
    rabbit.channel = rabbit.connect()
    pull.finish(3000)


@on_rabbitmq_4
def test_a_drain_by_1_0_that_is_killed_or_cut_loses_nothing(drain: Drains, rabbit: Rabbit) -> None:
    pull = drain(2)
    for number, when in enumerate(("before", "after")):
        send_some(rabbit, pull.queue, 10, poisoned=5, first=10 * number)
        assert pull.run(*step("ChainOfTwo.acknowledge", **{when: _DIE}))[0] == -signal.SIGKILL
    send_some(rabbit, pull.queue, 10, poisoned=5, first=20)
    with through_a_cutter(pull) as cutter:
        for answers in (900, 1400):
            cutter.answers = answers
            assert pull.run()[0] in (0, 3, 4)
    pull.run()
    pull.finish(32)
