"""Metrics: what the Prometheus parser and an OpenTelemetry collector read of them."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families
from support.archives import letter
from support.servers.hostile import Server, answering, certificate, speaking_tls

from dlq.archive import losses, segments
from dlq.archive.storage.store import LocalStore
from dlq.core.errors import UsageError
from dlq.reports.formats import metrics, metrics_otlp
from dlq.reports.formats.metrics import Metric, RunFacts

REPORT: dict[str, Any] = {
    "matrix": [
        {"source": "orders", "cause": "expired", "letters": 2},
        {"source": "orders", "cause": "unknown", "letters": 1},
    ],
    "sources": [
        {"source": "orders", "open": 3, "oldest": "2026-11-22T16:13:00Z", "new_failures": 1, "regressed": 2},
        {"source": "payments", "open": 0, "oldest": None, "new_failures": 0, "regressed": 0},
    ],
    "counts": {"confirmed": 0, "in_doubt": 1, "held": 0, "ongoing": 2},
}
PULLS = [
    {"source": "orders", "snapshot": 7, "left": 4, "seconds": 1.5},
    {"source": "payments", "error": "no answer from 10.0.0.1"},
]
FACTS = RunFacts(PULLS, 12.25, 3, 1_800_000_000.5, 1_799_999_999.0)


@pytest.fixture
def store(store: LocalStore) -> LocalStore:
    segments.commit(store, "orders", "20261121T000000-abcd", 1, "drain", [letter(n) for n in range(3)], {})
    return store


def parsed(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Any], name: str, **labels: str) -> float:
    family = families[name.removesuffix("_total")]
    (found,) = [s.value for s in family.samples if s.name == name and s.labels == labels]
    return float(found)


def test_prometheus_reads_what_was_counted_by_the_conventions_of_names_and_labels(store: LocalStore) -> None:
    losses.keep(store, "orders", [losses.Missing("orders.dlq", 3, 8)])
    families = parsed(metrics.text(metrics.gather(store, REPORT, FACTS)))
    for name, labels, expected in (
        ("captured_letters_total", {"source": "orders"}, 3), ("in_doubt_letters", {}, 1),
        ("letters", {"source": "orders", "cause": "expired"}, 2), ("queue_letters", {"source": "orders"}, 7),
        ("source_up", {"source": "orders"}, 1), ("source_up", {"source": "payments"}, 0),
        ("lost_letters", {"source": "orders"}, 5), ("last_run_timestamp_seconds", {}, 1_800_000_000.5),
        ("last_success_timestamp_seconds", {}, 1_799_999_999),
        ("open_letters", {"source": "orders"}, 3), ("open_letters", {"source": "payments"}, 0),
        ("oldest_open_letter_timestamp_seconds", {"source": "orders"}, 1_795_363_980),
        ("new_failures", {"source": "orders"}, 1), ("regressed_failures", {"source": "orders"}, 2),
    ):  # fmt: skip
        assert value(families, f"dlq_{name}", **labels) == expected, name
    assert len(families["dlq_oldest_open_letter_timestamp_seconds"].samples) == 1, (
        "where nothing waits is none"
    )
    for family in families.values():
        assert family.name.startswith("dlq_")
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge")
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert set(sample.labels) <= {"source", "cause"}


def test_without_a_report_its_metrics_are_absent_and_hostile_labels_stay_labels(store: LocalStore) -> None:
    families = parsed(metrics.text(metrics.gather(store, None, FACTS)))
    assert "dlq_letters" not in families
    assert "dlq_captured_letters" in families
    hostile = 'a"} 1\nevil{x="\\'
    text = metrics.text([Metric("dlq_letters", "gauge", "Letters.", {(("source", hostile),): 1})])
    (sample,) = parsed(text)["dlq_letters"].samples
    assert sample.labels == {"source": hostile}


class Collector(HTTPServer):
    """Takes what OTLP sends, or refuses it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.requests: list[ExportMetricsServiceRequest] = []


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        self.server.requests.append(ExportMetricsServiceRequest.FromString(body))
        assert self.path == "/v1/metrics"
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        """Nothing on stderr."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_gets_the_same_numbers(store: LocalStore, collector: Collector) -> None:
    gathered = metrics.gather(store, REPORT, FACTS)
    metrics_otlp.send(gathered, f"http://127.0.0.1:{collector.server_port}", 100.0, 200.0)
    (request,) = collector.requests
    found = {m.name: m for m in request.resource_metrics[0].scope_metrics[0].metrics}
    counter = found["dlq_captured_letters_total"].sum
    (point,) = counter.data_points
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (3, 100 * 10**9, 200 * 10**9)
    assert counter.is_monotonic
    points = found["dlq_letters"].gauge.data_points
    counted = {(point.attributes[1].value.string_value, point.as_int) for point in points}
    assert counted == {("expired", 2), ("unknown", 1)}


def check_refused(store: LocalStore, url: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"did not take the metrics: {why}; check its log$"):
        metrics_otlp.send(metrics.gather(store, None, FACTS), url, 1.0, 2.0)


@pytest.mark.parametrize("status", [400, 401])
def test_a_collector_that_refuses_is_one_line(store: LocalStore, collector: Collector, status: int) -> None:
    collector.status = status
    check_refused(store, f"http://dlq:hush@127.0.0.1:{collector.server_port}", f"HTTP {status}")


def test_why_a_collector_cannot_be_asked_is_said(store: LocalStore, tmp_path: Path) -> None:
    with Server(answering(b""), tls=speaking_tls(certificate(tmp_path, "IP:127.0.0.1"))) as server:
        check_refused(store, f"https://dlq:hush@{server.address}", "self-signed certificate")
    check_refused(store, "http://dlq:hush@127.0.0.1:1", "Connection refused")


@pytest.mark.parametrize("status", [200, 307, 500])
def test_no_body_of_a_collector_is_read_and_it_leads_nowhere(
    store: LocalStore, collector: Collector, status: int
) -> None:
    sent = []
    is_over = threading.Event()

    class Giant(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Location", f"http://127.0.0.1:{collector.server_port}/v1/metrics")
            self.send_header("Content-Length", str(2**40))
            self.end_headers()
            try:
                while len(sent) < 500:
                    self.wfile.write(bytes(2**20))
                    sent.append(1)
            except OSError:
                is_over.set()

        def log_message(self, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.2", 0), Giant) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.2:{server.server_port}"
        with nullcontext() if status == 200 else pytest.raises(UsageError, match="did not take"):
            metrics_otlp.send(metrics.gather(store, None, FACTS), url, 1.0, 2.0)
        thread.join()
    assert is_over.is_set()
    assert len(sent) < 50
    assert collector.requests == []
