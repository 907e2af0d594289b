"""What would be lost: where each kind of death leads, by the brokers' definitions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlq.connectors.base import Fate
from dlq.core.documents import Document
from dlq.core.errors import DlqError, UsageError
from dlq.core.values.suggestions import suggest
from dlq.operations.brokers.connecting import ask_each
from dlq.operations.outcome import tell_errors
from dlq.operations.workspace import Workspace

COLUMNS = ("broker", "what", "death", "leads_to", "verdict", "why", "fix")
VERDICTS = ("lost", "unknown", "kept")
"""In the order in which they matter."""
COUNTS = (*VERDICTS, "total")
"""What `--fail-on` can name."""
DEATHS = ("reject", "expiry", "overflow", "delivery limit", "discard", "unroutable", "give-up")


class Covered(NamedTuple):
    """What the brokers' definitions say, as `dlq coverage -o json` prints it, and what went wrong with other
    brokers."""

    document: Document
    errors: Mapping[str, DlqError]

    @property
    def rows(self) -> Sequence[Mapping[str, object]]:
        """One for each death; what is lost comes first."""
        rows: Sequence[Mapping[str, object]] = self.document["coverage"]
        return rows


def cover(workspace: Workspace, broker: str | None = None, deaths: Sequence[str] = ()) -> Covered:
    """Ask one broker, or all, about these kinds of death, or all. Nothing is changed there. Raises UsageError
    for an unknown one; the listener hears of brokers that do not answer."""
    for death in deaths:
        if death not in DEATHS:
            raise UsageError(
                f"unknown death {death!r}{suggest(death, DEATHS)}; known are {', '.join(DEATHS)}"
            )
    found, errors = ask_each(workspace, broker, lambda connector: connector.coverage())
    rows = [
        _row(name, fate)
        for name, fates in found.items()
        for fate in fates
        if not deaths or fate.death in (*deaths, "any")
    ]
    rows.sort(key=lambda row: VERDICTS.index(row["verdict"]))
    brokers = {name: _count([row for row in rows if row["broker"] == name]) for name in found}
    document = {
        "coverage": rows,
        "counts": _count(rows),
        "brokers": brokers,
        "errors": tell_errors("broker", errors),
    }
    return Covered(document, errors)


def _row(broker: str, fate: Fate) -> Document:
    what = f"{fate.kind} {fate.name}"
    return dict(
        zip(
            COLUMNS,
            (broker, what, fate.death, list(fate.leads_to), fate.verdict, fate.why, fate.fix),
            strict=True,
        )
    )


def _count(rows: Sequence[Document]) -> dict[str, int]:
    found = Counter(row["verdict"] for row in rows)
    return {**{verdict: found[verdict] for verdict in VERDICTS}, "total": len(rows)}
