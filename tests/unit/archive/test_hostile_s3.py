"""An object store that means harm ends no command but in a line, and gets nothing that is not its own."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path

import pytest
from support.archives import letter, write_segment
from support.rows import each_row

from dlq.archive.storage import s3
from dlq.archive.storage.s3 import S3Store
from dlq.archive.storage.s3_lock import Lock
from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run
from dlq.core.errors import ArchiveError
from dlq.core.runtime import bounded_json, patience

Answer = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    server: "HostileStore"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.close_connection = True
        try:
            self.server.answer(self)
        except OSError:  # whoever asked has gone
            return

    do_HEAD = do_PUT = do_DELETE = do_GET  # noqa: N815 (names of http.server)

    def log_message(self, *_: object) -> None: ...

    def tell(self, body: bytes, status: int = 200, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def tell_for_ever(self, piece: bytes, pause: float = 0.0) -> None:
        """Until whoever asked has gone."""
        self.tell(piece, length=10**15, ETag='"x"', Last_Modified="Mon, 02 Nov 2026 03:12:44 GMT")
        while self.command != "HEAD":
            self.wfile.write(piece)
            self.server.sent += len(piece)
            time.sleep(pause)


class HostileStore(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.answer: Answer = lambda request: request.tell(b"", 500)
        self.seen: list[str] = []
        self.sent = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileStore]:
    with HostileStore() as server:
        told = {"ENDPOINT_URL": server.url, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}
        for name, value in {**told, "SESSION_TOKEN": "of-a-session", "DEFAULT_REGION": "us-east-1"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setitem(s3.CONFIG, "retries", {"max_attempts": 1})
        yield server
        server.shutdown()


@pytest.fixture
def store(hostile: HostileStore) -> S3Store:
    return S3Store("s3://letters/path")


def page(*keys: str, token: str = "", more: str = "") -> bytes:
    """A page of a listing."""
    found = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    found += f"<IsTruncated>{'true' if token or more else 'false'}</IsTruncated>"
    found += token and f"<NextContinuationToken>{token}</NextContinuationToken>"
    return f"<ListBucketResult>{found}<EncodingType>url</EncodingType></ListBucketResult>".encode()


BOMB = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa">%s]>
<ListBucketResult><Name>&z9;</Name></ListBucketResult>""" % b"".join(
    b'<!ENTITY %s "%s">' % (name, b"&%s;" % before * 40)
    for before, name in itertools.pairwise([b"a", *(b"z%d" % n for n in range(10))])
)

numbers = itertools.count()


def a_page(*keys: str, **how: str) -> Answer:
    return lambda request: request.tell(page(*keys, **how))


def next_page(names: int) -> Answer:
    """Another token each time, and so many new names."""
    return lambda request: request.tell(
        page(*(f"path/manifests/{next(numbers)}.json" for _ in range(names)), token=f"t{next(numbers)}")
    )


ODD: dict[str, Answer] = {
    "no XML": lambda request: request.tell(b"<html>"),
    "a bomb": lambda request: request.tell(BOMB),
    "an error without end": lambda request: request.tell(
        b"x" * (9 << 20 if request.command != "HEAD" else 0), 403
    ),
    "a page without end": lambda request: request.tell_for_ever(b" " * 65536),
    "more, and no token": a_page("path/manifests/a.json", more="yes"),
    "one token for ever": a_page("path/manifests/a.json", token="t"),
    "new tokens for ever": next_page(0),
    "new names for ever": next_page(500),
    "a new name now and then": next_page(1),
    "names that are too long": a_page("path/manifests/" + "x" * 1025),
    "a size that is none": lambda request: request.tell(page("path/a").replace(b"<Size>1", b"<Size>x")),
    "bytes that drip": lambda request: request.tell_for_ever(b" ", 0.05),
    "less than it says": lambda request: request.tell(page("path/a"), length=10**6),
    "a redirect": lambda request: request.tell(b"", 307, Location=f"{request.server.url}/elsewhere"),
    "another region": lambda request: request.tell(b"", 301, x_amz_bucket_region="x@127.0.0.1/"),
    "a head that is no HTTP": lambda request: request.wfile.write(b"\0\x1b[31m\r\n\r\n"),
}
COMMANDS = [["ls"], ["verify"], ["report"], ["analyze"], ["replay", "plan"]]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ANSWER", 1.0)
    monkeypatch.setattr(s3, "MOST_NAMES", 5000)
    monkeypatch.setattr(patience, "LOOK", 5.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ODD)
def test_what_is_no_listing_is_said_in_a_line(hostile: HostileStore, store: S3Store, how: str) -> None:
    hostile.answer = ODD[how]
    said = r"^cannot list manifests/ in the archive s3://letters/path: \S.*; check the endpoint"
    with pytest.raises(ArchiveError, match=said):
        store.list("manifests/")
    assert not any("elsewhere" in path for path in hostile.seen)
    assert hostile.sent < 64 << 20


@pytest.fixture
def told(
    hostile: HostileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What a command complains of in one line, which steers no terminal, while the store answers so."""
    monkeypatch.chdir(tmp_path)
    Path("dlq.toml").write_text('archive = "s3://letters/path"\n')

    def run_it(answer: Answer, *words: str) -> str:
        hostile.answer = answer
        assert run(words) in (3, 4), words
        said = capsys.readouterr().err
        assert (said.count("\n"), "\x1b" in said) == (1, False), said
        return said

    return run_it


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_ends_but_in_a_line(told: Callable[..., str], command: list[str]) -> None:
    for how in ("a bomb", "a redirect", "bytes that drip"):
        told(ODD[how], *command)


def test_a_redirect_takes_no_letter_and_no_token_to_another_host(
    hostile: HostileStore, store: S3Store
) -> None:
    with HostileStore() as other:
        acts = (store.get, store.open, store.delete, lambda name: store.put(name, b"a letter"))
        for status, act in product((302, 307, 308), acts):
            hostile.answer = lambda request, status=status: request.tell(b"", status, Location=other.url)  # type: ignore[misc]
            with pytest.raises(ArchiveError):
                act("segments/a")
        other.shutdown()
        assert other.seen == []


@pytest.mark.usefixtures("impatient")
def test_no_more_of_an_object_or_a_document_comes_than_was_asked_for_in_time(
    hostile: HostileStore, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_json, "LARGEST", 1 << 20)
    hostile.answer = ODD["a page without end"]
    assert len(store.get("manifests/a.json")) == (1 << 20) + 1
    assert hostile.sent < 64 << 20
    for opened in (store.open, store.parquet):
        with opened("segments/a") as file, pytest.raises(OSError, match="more than the"):
            file.read(10)
    assert hostile.sent < 256 << 20
    hostile.answer = ODD["bytes that drip"]
    with pytest.raises(ArchiveError, match=r"cannot read manifests/a\.json"):
        store.get("manifests/a.json")


@each_row("key", ["path/manifests/../../x.json", "path/manifests//x.json", "path/manifests/%1B[31m%0Ax.json"])
def test_a_name_that_leads_elsewhere_is_named_and_not_asked_for(
    hostile: HostileStore, told: Callable[..., str], key: str
) -> None:
    for command in COMMANDS:
        told(lambda request: request.tell(page(key) if "list-type" in request.path else b"{}"), *command)
    assert not any(".." in path for path in hostile.seen)


TIME = "Mon, 02 Nov 2026 03:12:44 GMT"
HEAD = {"Date": TIME, "ETag": '"x"', "Last-Modified": TIME}
TIMES = (
    None, "", "x", "9" * 5000, "nan", "1e400", "-9223372036854775808", "Mon, 02 Nov 99999999999 03:12:44 GMT",
    "Mon, 02 Nov 2026 03:12:44 +99999999999",
)  # fmt: skip
HEADS = [
    {**HEAD, name: value} for name, value in [("ETag", None), *product(("Date", "Last-Modified"), TIMES)]
]


def headed(head: Mapping[str, str | None]) -> Answer:
    """Somebody has the lock, and this is what the store says of it."""

    def answer(request: Request) -> None:
        if request.command == "PUT":
            request.tell(b"<Error><Code>PreconditionFailed</Code></Error>", 412)
            return
        request.send_response_only(200)
        for name, value in {**head, "Content-Length": "2"}.items():
            if value is not None:
                request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(b"{}")

    return answer


@each_row("head", HEADS)
def test_an_odd_head_of_a_lock_is_said_in_a_line(
    hostile: HostileStore, store: S3Store, head: Mapping[str, str | None]
) -> None:
    hostile.answer = headed(head)
    with pytest.raises(ArchiveError, match="cannot lock work in the archive"), store.lock("work"):
        pass
    with pytest.raises(ArchiveError, match="cannot read work in the archive"):
        store.holder("work")
    for name, zone in product(("Date", "Last-Modified"), ("", " -0000")):  # without a zone it is universal
        hostile.answer = headed({**HEAD, name: f"Mon, 02 Nov 2026 03:12:44{zone}"})
        assert store.holder("work") == "another run"


@each_row("head", HEADS)
def test_a_lock_whose_keeper_gets_odd_answers_is_lost_and_ends_nothing(
    hostile: HostileStore, store: S3Store, head: Mapping[str, str | None]
) -> None:
    hostile.answer = lambda request: request.tell(b"", ETag='"x"')
    lock = Lock(store.filesystem, "letters/path/locks/work", "work", lease=0.3)
    assert lock._put()
    hostile.answer = headed(head)
    keeper = threading.Timer(0, lock.keep)  # what it raises fails the test
    keeper.start()
    time.sleep(0.4)
    lock.release()
    keeper.join()
    with pytest.raises(ArchiveError, match="was lost"):
        lock.check()


def test_a_time_of_a_listing_that_no_calendar_has_is_said_in_a_line(
    hostile: HostileStore, store: S3Store
) -> None:
    for odd in filter(None, TIMES):
        listed = page("path/manifests/a").replace(
            b"<Size>", b"<LastModified>%b</LastModified><Size>" % odd.encode()
        )
        hostile.answer = lambda request, listed=listed: request.tell(listed)  # type: ignore[misc]
        try:
            assert store.list("manifests/") == ["manifests/a"]
        except ArchiveError as error:
            assert "cannot list manifests/" in str(error)  # noqa: PT017 (either is well)


HTTP = b"HTTP/1.1 200 OK\r\n"
UNREADABLE = [
    (HTTP + b"Content-Length: x\r\n\r\n", "Content-Length"),
    (HTTP + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\n", "Content-Length"),
    (HTTP + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTPClientError"),
    (b"", "Connection was closed"),
]


def holding(key: str, files: Mapping[str, bytes]) -> Answer:
    """A store that lists one key, and answers for these endings of names, which else are not there."""

    def answer(request: Request) -> None:
        if "list-type" in request.path:
            request.tell(page(key) if key.split("/")[1] in request.path else page())
        elif found := [content for end, content in files.items() if request.path.endswith(end)]:
            request.wfile.write(found[0])
        else:
            request.tell(b"<Error><Code>NoSuchKey</Code></Error>", 404)

    return answer


@each_row(("answer", "why"), UNREADABLE)
def test_why_a_segment_cannot_be_read_is_said(
    told: Callable[..., str], tmp_path: Path, answer: bytes, why: str
) -> None:
    write_segment(LocalStore(str(tmp_path)), "p-0", [letter(1)])
    manifest = (tmp_path / "manifests" / "p-0.json").read_bytes()
    whole = HTTP + b"Content-Length: %d\r\n\r\n" % len(manifest) + manifest
    said = told(holding("path/manifests/p-0.json", {"p-0.json": whole, ".parquet": answer}), "ls")
    assert said.startswith("dlq: cannot read the archive: "), said
    assert (why in said, "^^" in said) == (True, False), said


@pytest.mark.parametrize("folder", ["manifests", "losses"])
def test_what_is_listed_and_not_there_is_said_in_a_line(told: Callable[..., str], folder: str) -> None:
    said = told(holding(f"path/{folder}/a.json", {}), "verify")
    assert f"lists '{folder}/a.json', which is not there" in said


def test_names_outside_of_the_archive_are_not_seen(hostile: HostileStore, store: S3Store) -> None:
    keys = ("path/manifests/a", "other/manifests/b", "manifests/c", "path/manifests/", "pathmanifests/d")
    hostile.answer = lambda request: request.tell(page(*keys))
    assert store.list("manifests/") == ["manifests/a"]
