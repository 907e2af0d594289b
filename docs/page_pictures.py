"""Draws docs/page-*.png: what `dlq serve` shows of a bad night, at a desk and on a phone.

    python docs/page_pictures.py

The night is played on the embedded broker; nothing else has to run.
"""

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.servers.chromium import Page, chromium
from support.serving import run, serving
from support.waiting import eventually

from dlq.connectors.memory import broker_at

HERE = Path(__file__).parent.resolve()
VIEWS = (("", 1400, 800), ("-phone", 390, 844))
"""End of the name, and the pixels that are shown."""
_CONFIG = """\
archive = "{folder}/archive"
[brokers.shop]
kind = "memory"
url = "memory://{folder}/broker.db"
{sources}
[mask]
show = ["exception_message", "key", "header:x-exception-*", "header:tenant", "header:host"]
[replay]
approval = true
[serve]
proxies = ["127.0.0.1"]
[serve.roles]
triage = ["*"]
plan = ["*"]
approve = ["*"]
apply = ["*"]
"""
_QUEUES = ("orders", "invoices", "mails")
_WRAPPED = (
    "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw exception"
)
_LIBRARY = "\n".join(f"\tat org.springframework.amqp.Container.run{n}(Container.java:{n})" for n in range(9))
_SMTP = "Could not connect to SMTP host: mail.shop.example, port: 587"
_FAULTS = (
    ("orders", 240, 0.45, 0.12, "java.net.SocketTimeoutException",
     "payment-gateway:443 did not answer within 3000 ms", "com.shop.payment.Gateway.charge(Gateway.java:88)"),
    ("invoices", 60, 0.5, 0.1, "java.net.SocketTimeoutException",
     "payment-gateway:443 did not answer within 3000 ms", "com.shop.invoice.Sender.send(Sender.java:31)"),
    ("orders", 38, 0.5, 0.5, "com.shop.stock.NegativeStockException",
     "stock of SKU-{n} would be negative", "com.shop.stock.Stock.take(Stock.java:42)"),
    ("mails", 21, 0.8, 0.05, "jakarta.mail.MessagingException",
     _SMTP, "com.shop.mail.Mailer.deliver(Mailer.java:19)"),
    ("invoices", 4, 0.3, 0.2, "com.fasterxml.jackson.databind.exc.MismatchedInputException",
     "Cannot deserialize value of type `java.time.LocalDate` from String \"2026-13-01\"",
     "com.shop.invoice.Reader.read(Reader.java:77)"),
)  # fmt: skip
"""Queue, letters, when in the last day and how wide (parts of it), exception, message, own frame."""


def write_night(folder: Path) -> None:
    """An archive of what died in the last day."""
    sources = "\n".join(f'[sources.{q}]\nbroker = "shop"\nqueue = "{q}.dlq"' for q in _QUEUES)
    (folder / "dlq.toml").write_text(_CONFIG.format(folder=folder, sources=sources))
    for queue in _QUEUES:
        for name in (queue, f"{queue}.dlq"):
            broker_at(f"memory://{folder}/broker.db").declare(name)
        rows = sorted(
            (one for one in _letters() if one["queue"] == f"{queue}.dlq"), key=lambda one: one["dead_at"]
        )
        (folder / f"{queue}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        run(folder, "import", f"{queue}.jsonl", "--source", queue)


def _letters() -> Iterator[dict[str, Any]]:
    chance, number = random.Random(7), 4700
    end = datetime.now(UTC)
    for queue, count, middle, width, exception, message, frame in _FAULTS:
        for _ in range(count):
            number += 1
            part = min(0.98, max(0.01, chance.gauss(middle, width / 2)))
            at = end - timedelta(hours=23) * (1 - part)
            said = message.format(n=number % 3)
            own = f"Caused by: {exception}: {said}\n\tat {frame}"
            yield {
                "broker_kind": "rabbitmq",
                "broker_version": "4.1.4",
                "queue": f"{queue}.dlq",
                "message_id": f"order-{number}",
                "body_text": json.dumps({"order": number, "sku": f"SKU-{number % 3}", "total": 19.9}),
                "dead_at": at.isoformat(),
                "published_at": (at - timedelta(seconds=40)).isoformat(),
                "properties": {"content_type": "application/json", "delivery_mode": "2"},
                "headers": {
                    "x-exception-message": said,
                    "x-exception-stacktrace": f"{_WRAPPED}\n{_LIBRARY}\n{own}\n{_LIBRARY}",
                    "x-original-exchange": "",
                    "x-original-routingKey": queue,
                    "host": f"worker-{1 + (number % 7 == 0)}",
                    "tenant": "eu" if number % 5 else "us",
                },
            }


def main() -> None:
    """Play the night, and draw its pages."""
    with tempfile.TemporaryDirectory(prefix="dlq-night-") as name:
        folder = Path(name)
        write_night(folder)
        timeout, refused = (_failure_of(folder, text) for text in ("orders", "mails"))
        waits = _plan(folder, timeout, "the gateway is back since 02:10")
        goes = _plan(folder, refused, "the mailer is up again", "--rate", "0.2")
        run(folder, "replay", "approve", goes, "--as", "eve")
        run(folder, "failures", "assign", timeout, "ada", "--as", "bob")
        with serving(folder) as server, chromium() as page:
            page.call("Network.setExtraHTTPHeaders", headers={"X-Forwarded-User": "ada"})
            base = f"http://127.0.0.1:{server.port}"
            page.open(f"{base}/plans/{goes}")
            page.run("document.querySelector('[name=ramp]').checked = false")
            page.run("document.querySelector('form[action$=apply] button').click()")
            for view in VIEWS:  # first, while it goes on
                _draw(page, base, "replay", f"/replays/{goes}", *view)
            for view in VIEWS:
                _draw(page, base, "now", "/", *view)
                _draw(page, base, "failure", f"/failures/{timeout}", *view)
                _draw(page, base, "letters", f"/letters?failure={timeout[:12]}&advice=replay", *view)
                _draw(page, base, "plan", f"/plans/{waits}", *view)


def _failure_of(folder: Path, origin: str) -> str:
    """The failure with the most letters there."""
    found = run(folder, "failures")
    return next(str(one["fingerprint"]) for one in found if one["origins"] == [origin])


def _plan(folder: Path, failure: str, reason: str, *more: str) -> str:
    words = ("replay", "plan", "--failure", failure, "--reason", reason, "--as", "bob")
    return str(run(folder, *words, *more)["plan"])


def _draw(page: Page, base: str, name: str, path: str, end: str, width: int, height: int) -> None:
    page.open(base + path, width, height, prefers_color_scheme="light")
    if name == "replay":
        eventually(lambda: " a second: about " in page.run("document.body.innerText"))
    page.picture(HERE / f"page-{name}{end}.png", whole=False)


if __name__ == "__main__":
    main()
