"""AMQP 1.0 over TLS, and what is said when a broker refuses it in the middle of a pull or a replay."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.brokers.rabbitmq.amqp10 import a_poison, captured, send_some
from support.brokers.rabbitmq.fixtures import Rabbit, on_rabbitmq_4
from support.brokers.rabbitmq.letters import leaves_out, letter, new_plan, outcomes, publish, to_queue
from support.sending_contract import until_it_ends

from dlq.cli.app import run
from dlq.cli.exit import ExitCode
from dlq.connectors.base import SendRequest, Target
from dlq.connectors.rabbitmq.amqp10.send import open_session
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import AccessDenied, Unreachable

pytestmark = [pytest.mark.rabbitmq, on_rabbitmq_4]

PASSWORD = "secret-word"
VARIABLE = "DLQ_TEST_USERS_PASSWORD"
_numbers = count(1)
Change = Callable[[Rabbit, str], None]


def set_password(rabbit: Rabbit, user: str, password: str = "another") -> None:
    rabbit.node.api("PUT", "users", user, password=password, tags="monitoring")


@pytest.fixture
def user(rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One who may do everything, until a test says otherwise."""
    name = f"user-{next(_numbers)}"
    monkeypatch.setenv(VARIABLE, PASSWORD)
    set_password(rabbit, name, PASSWORD)
    rabbit.allow(name)
    yield name
    rabbit.node.api("DELETE", "users", name)


def broker_of(rabbit: Rabbit, user: str) -> RabbitBroker:
    url = rabbit.broker().url.replace("guest@", f"{user}@")
    return rabbit.broker(url=url, password_env=VARIABLE)


def test_letters_come_and_go_by_amqp_1_0_over_tls(rabbit: Rabbit) -> None:
    queue, target = rabbit.queue(), rabbit.queue("quorum")
    send_some(rabbit, queue, 3, poisoned=1)
    rabbit.wait_for(queue, 3)
    found = captured(rabbit.by_tls(), queue)
    assert [one.body for one in found] == [b"1", b"0", b"2"]
    many_frames = found[0]._replace(body=b"x" * 3_000_000, body_size=3_000_000)
    outgoing = [letter(n, to_queue(target), what) for n, what in enumerate([*found, many_frames])]
    assert outcomes(publish(rabbit.by_tls(), outgoing)) == dict.fromkeys(range(4), "confirmed")
    rabbit.wait_for(target, 4)
    back = captured(rabbit.by_tls(), target)
    assert {one.body for one in back} == {b"0", b"1", b"2", many_frames.body}


def test_a_limit_of_connections_which_the_broker_does_not_tell_is_guessed(rabbit: Rabbit) -> None:
    rabbit.node.api("PUT", "vhost-limits", rabbit.vhost, "max-connections", value=0)
    with pytest.raises(Unreachable, match=r"a limit of connections, or .*\? The broker's log says it"):
        open_session(rabbit.broker())


def take_rights(rabbit: Rabbit, user: str) -> None:
    rabbit.allow(user, "^$ ^$ ^$")


@pytest.mark.parametrize(
    ("changed", "says"),
    [(set_password, "the user or the password is refused"), (take_rights, "read access to queue")],
)
def test_what_is_refused_in_mid_pull_is_said_and_nothing_is_lost(
    rabbit: Rabbit,
    user: str,
    changed: Change,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    queue = rabbit.queue()
    send_some(rabbit, queue, 4, poisoned=1)
    rabbit.wait_for(queue, 4)
    configuration = configured(tmp_path, broker_of(rabbit, user), queue)
    command = ["-c", str(configuration), "-o", "json", "pull", "--mode", "drain"]
    with monkeypatch.context() as patch:
        when_a_pull_turns_to_amqp_1_0(patch, lambda: changed(rabbit, user))
        assert run(command) == ExitCode.BROKER
    out, err = capfd.readouterr()
    [pulled] = json.loads(out)["sources"]
    assert (pulled["captured"], pulled["acknowledged"], pulled["left"]) == (1, 1, 3)
    [line] = [line for line in err.splitlines() if says in line]
    assert line.startswith("dlq: orders: shop")
    assert "check the user, the password and its rights" in line
    assert PASSWORD not in err
    rabbit.wait_for(queue, 3)
    set_password(rabbit, user, PASSWORD)
    rabbit.allow(user)
    assert run(command) == ExitCode.DONE
    [pulled] = json.loads(capfd.readouterr().out)["sources"]
    assert (pulled["captured"], pulled["acknowledged"], rabbit.depth(queue)) == (3, 3, 0)


def configured(folder: Path, broker: RabbitBroker, queue: str) -> Path:
    """A configuration of one source, with its archive in the folder."""
    named = ("kind", "url", "password_env", "management_url")
    settings = "".join(f"{name} = {json.dumps(getattr(broker, name))}\n" for name in named)
    path = folder / "dlq.toml"
    path.write_text(
        f'archive = "{folder}/archive"\n[sources.orders]\nbroker = "shop"\nqueue = "{queue}"\n'
        f"[brokers.shop]\n{settings}"
    )
    return path


def when_a_pull_turns_to_amqp_1_0(patch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Between its connection over 0-9-1 and the one over 1.0."""
    scanning = RabbitConnector._begin_reading

    def then(connector: RabbitConnector, link: Any, wanted: Any, *known: Any) -> Any:
        if wanted.careful:
            happens()
        return scanning(connector, link, wanted, *known)

    patch.setattr(RabbitConnector, "_begin_reading", then)


def test_a_password_that_is_refused_in_mid_replay_is_said_and_nothing_is_known_to_have_been_sent(
    rabbit: Rabbit, user: str
) -> None:
    target, found = rabbit.queue(), a_poison(rabbit)
    publisher = RabbitConnector(broker_of(rabbit, user)).publisher(SendRequest(new_plan(), 10))
    set_password(rabbit, user)
    told: list[int] = []
    letters = iter([letter(n, to_queue(target), found) for n in range(3)])
    sent, error = until_it_ends(publisher, letters, told.extend)
    assert isinstance(error, AccessDenied)
    assert "the user or the password is refused" in str(error)
    assert "\n" not in str(error)
    assert ([one.outcome for one in sent], told) == (["unsent"], []), "none of it was written"
    assert rabbit.depth(target) == 0


def forbid_exchange(rabbit: Rabbit, user: str) -> Target:
    rabbit.channel.exchange_declare("secret", "fanout")
    rabbit.allow(user, ".* ^(?!secret) .*")
    return Target("exchange", "secret", "key")


def forbid_default_exchange(rabbit: Rabbit, user: str) -> Target:
    rabbit.allow(user, ".* ^allowed .*")
    return to_queue(rabbit.queue())


def forbid_topic(rabbit: Rabbit, user: str) -> Target:
    rabbit.channel.exchange_declare("topics", "topic")
    rabbit.allow_topic("topics", "^allowed", user)
    return Target("exchange", "topics", "forbidden.key")


@pytest.mark.parametrize("forbid", [forbid_exchange, forbid_default_exchange, forbid_topic])
def test_a_target_that_may_not_be_written_to_is_left_out_and_named_and_the_rest_goes(
    rabbit: Rabbit, user: str, forbid: Callable[[Rabbit, str], Target]
) -> None:
    target, found = rabbit.queue(), a_poison(rabbit)
    rabbit.channel.exchange_declare("allowed", "fanout")
    rabbit.channel.queue_bind(target, "allowed")
    offending = forbid(rabbit, user)
    leaves_out(broker_of(rabbit, user), offending, Target("exchange", "allowed", "key"), found)
    rabbit.wait_for(target, 40)
