"""The page as the installed command serves it: what is killed, slow, silent, or gone."""

import re
import select
import signal
import socket
import subprocess
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from support.serving import DLQ, Server, copy_archive, run, serving, write_archive
from support.waiting import PATIENCE, eventually

from dlq.connectors.memory import broker_at

LETTERS, RATE = 300, 30


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    write_archive(folder, LETTERS)
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    return copy_archive(filled, tmp_path)


def make_plan(server: Server, rate: int = RATE) -> str:
    """Plan all letters by the form, slowly enough to be watched."""
    fields = {"source": "orders", "to": "queue:orders", "rate": str(rate), "any_advice": "1", "reason": "yes"}
    return server.post("/plans", fields, "/plans/new?source=orders").removeprefix("/plans/")


def confirmed(folder: Path, plan: str) -> int:
    return int(run(folder, "replay", "status", plan)["states"]["confirmed"])


def arrived(folder: Path) -> list[str]:
    """The bodies of all letters that came back to their queue."""
    return [one["body_text"] for one in broker_at(f"memory://{folder}/broker.db").letters("orders")]


def test_a_server_that_is_killed_at_any_moment_of_an_apply_loses_and_doubles_nothing(folder: Path) -> None:
    with serving(folder) as first:
        plan = make_plan(first.enter())
        first.apply_plan(plan)
        first.kill()
    for seconds in (0, 0.5):
        with serving(folder) as server:
            text = server.enter().get(f"/replays/{plan}")
            assert re.search(rf"of {LETTERS} confirmed", text)
            time.sleep(seconds)
            server.kill()
    with serving(folder) as last:
        last.enter()
        eventually(lambda: f"{LETTERS} of {LETTERS} confirmed" in last.get(f"/replays/{plan}"))
        # The command ends a moment later than its last letter is confirmed.
        eventually(lambda: "begun by" not in last.get(f"/replays/{plan}").partition('id="commands"')[0])
        assert re.search(r"root \[proven\]|\[proven\]", last.get("/audit"))
    bodies = arrived(folder)
    assert len(bodies) == len(set(bodies)) == LETTERS
    assert run(folder, "verify")["balanced"]


def test_who_signs_out_and_ctrl_c_stop_nothing_that_was_begun(folder: Path) -> None:
    with serving(folder) as server:
        plan = make_plan(server.enter())
        server.apply_plan(plan)
        token = re.findall(r'name="form_token" value="(\w+)"', server.get("/"))[0]
        assert server.ask("POST", "/logout", {"form_token": token})[0].status == 200
        assert server.ask("GET", f"/replays/{plan}")[0].status == 401
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == 0
    eventually(lambda: confirmed(folder, plan) == LETTERS)


def test_a_replay_is_stopped_by_the_page_and_begun_again(folder: Path) -> None:
    with serving(folder) as server:
        plan = make_plan(server.enter(), 5)
        server.apply_plan(plan)
        eventually(lambda: '<h1 id="what">0 of' not in server.get(f"/replays/{plan}"))
        server.post(f"/plans/{plan}/stop", {}, f"/replays/{plan}")
        eventually(lambda: "no run applies it" in server.get(f"/replays/{plan}"))
        before = run(folder, "replay", "status", plan)["states"]
        assert 0 < before["confirmed"] < LETTERS
        assert before["in_doubt"] == before["sending"] == 0
        server.apply_plan(plan)
        assert "begun by" in server.get(f"/replays/{plan}")
        server.post(f"/plans/{plan}/stop", {}, f"/replays/{plan}")
        eventually(lambda: "no run applies it" in server.get(f"/replays/{plan}"))
    assert len(set(arrived(folder))) == len(arrived(folder))


def test_progress_comes_as_events_from_its_beginning_to_its_end(folder: Path) -> None:
    with serving(folder) as server:
        plan = make_plan(server.enter())
        server.apply_plan(plan)
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)) as connection:
            connection.request("GET", f"/replays/{plan}/events", headers={"cookie": server.cookie})
            answer = connection.getresponse()
            assert str(answer.getheader("content-type")).startswith("text/event-stream")
            text = ""
            while text.count("event: turn") < 2:  # it begins and ends; what begins later is told, too
                text += answer.readline().decode()
        counts = [int(n) for n in re.findall(r"(\d+) of \d+ confirmed<?", text) if n]
        assert counts == sorted(counts)
        assert len(set(counts)) > 2


def test_a_pull_and_an_analysis_are_commands_that_can_be_followed(folder: Path) -> None:
    with serving(folder) as server:
        server.enter()
        for path, said in (("/pull", 'data-label="captured">0<'), ("/analyze", "causes")):
            place = server.post(path, {})
            eventually(lambda place=place: "It ended with 0: done." in server.get(place))
            assert said in server.get(place)


def test_no_token_stands_in_the_log(folder: Path) -> None:
    with serving(folder) as server:
        token = server.address.partition("token=")[2]
        server.enter().get("/letters?text=secret-of-somebody")
        server.ask("GET", "/?token=guessed-by-somebody")
        server.process.send_signal(signal.SIGINT)
        server.process.wait(PATIENCE)
    log = server.errors()
    assert "GET /letters 200" in log
    for secret in (token, server.cookie.partition("=")[2], "guessed", "secret-of-somebody"):
        assert secret not in log


def test_what_others_ask_takes_no_more_memory_than_the_server_may_have(folder: Path) -> None:
    with serving(folder) as server:
        limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    most = int(re.findall(r"Max data size +(\d+)", limits)[0])
    assert most <= 6.5 * 2**30  # beside what it has to begin with


def is_held(one: socket.socket) -> bool:
    """Whether the server waits for the rest of this request still."""
    return not select.select([one], [], [], 0)[0]


def test_a_request_that_never_ends_does_not_hold_the_others(folder: Path) -> None:
    head = b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    slow = [b"", b"GET /" + head + b"X-", b"POST /pull" + head + b"Content-Length: 9\r\n\r\na="]
    with serving(folder) as server:
        server.enter()
        for _ in range(9):
            held = [server.connect() for _ in range(60)]
            for number, one in enumerate(held):
                one.sendall(slow[number % len(slow)])
            assert "order" in server.get("/letters")
            if is_in_time := all(map(is_held, held)):  # they are let go after ten seconds
                break
        assert is_in_time, "the page came when they were let go"
        for one in held[:3]:
            one.settimeout(PATIENCE)
            while one.recv(65536):
                pass
        for one in held:
            one.close()


def test_where_nothing_can_be_listened_on_is_said_in_a_line(folder: Path) -> None:
    with serving(folder) as server:
        for option, where in (
            *(("--host", host) for host in ("0.0.0.0", "::", "10.0.0.7", "nowhere.invalid")),
            ("--port", str(server.port)),
        ):
            words = [DLQ, "serve", option, where]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 2, where
            assert (done.stderr.count("\n"), done.stderr[:5]) == (1, "dlq: "), done.stderr
    assert "take another --port" in done.stderr


def test_where_proxies_say_who_asks_no_token_is_printed(folder: Path) -> None:
    with open(folder / "dlq.toml", "a") as config:
        config.write('[serve]\nproxies = ["127.0.0.1"]\n')
    with serving(folder) as server:
        assert server.address == f"http://127.0.0.1:{server.port}/"
