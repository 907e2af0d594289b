"""What letters died of that were just captured, or came back from a replay."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from dlq.archive import manifests
from dlq.archive.manifests import Manifest
from dlq.core.causes import cause_in_words
from dlq.core.errors import ArchiveError, DlqError
from dlq.operations.analysis import analyze_new
from dlq.operations.outcome import ExitCode
from dlq.operations.workspace import Workspace

if TYPE_CHECKING:
    from dlq.archive.analyses import Analysis

_MOST_BACK, _LONGEST = 20, 500
MOST_LETTERS = 20_000
"""Letters that are classified alone at once; of more an analysis tells."""
_Verdict = tuple[str, int, Mapping[str, Any]]
"""The pull that brought letters, how many they are, and what _NAMED says of the first of them."""
_NAMED = ["source", "fingerprint", "cause", "proof", "exception_class", "exception_message", "evidence"]


class Triage(NamedTuple):
    """What is known of the new letters of some pulls."""

    causes: Mapping[str, Mapping[str, int]] | None
    """Pull id -> cause -> letters; None where they are too many to be classified here."""
    failures: list[tuple[int, str, str]]
    """Letters, their cause, and the failure in a line, the most frequent first."""
    letters: int
    code: ExitCode = ExitCode.DONE


def classify_new(workspace: Workspace, pull_ids: Collection[str], analyze: bool) -> Triage:
    """Return what the letters that these pulls have archived died of: by a new analysis (`analyze`, and where
    this process can make it), else by what each letter says alone, which is kept nowhere. Never an error:
    they are archived all the same."""
    try:
        done = analyze_new(workspace) if analyze else None
        new = [m for m in manifests.list_committed(workspace.store) if m.pull_id in pull_ids]
        letters, code = sum(m.rows for m in new), ExitCode.DONE if done is None else done.code
        if done is None and letters > MOST_LETTERS:
            return Triage(None, [], letters)
        verdicts = _read_verdicts(workspace, done.analysis, new) if done else _classify_alone(workspace, new)
        return _count(workspace, pull_ids, verdicts, code)
    except DlqError as error:
        workspace.listener.complain(f"archived, but not classified: {error}; dlq analyze classifies them")
        return Triage(None, [], 0, ExitCode.PARTLY)


def _read_verdicts(workspace: Workspace, analysis: "Analysis", new: Sequence[Manifest]) -> Iterator[_Verdict]:
    import pyarrow.compute as pc

    from dlq.archive import analyses
    from dlq.archive.storage import parquet

    pulls = {manifest.stem: manifest.pull_id for manifest in new}
    stems = pa.array(pulls, pa.string())
    for name in analysis.tables["verdicts"]:
        with parquet.readable(name):
            file = analyses.open_table(workspace.store, name, analyses.IN_FILES, [*_NAMED, "stem"])
            for number in range(file.num_row_groups):
                is_new = pc.is_in(file.read_row_group(number, columns=["stem"])["stem"], value_set=stems)
                if pc.any(is_new).as_py():
                    found = file.read_row_group(number, columns=[*_NAMED, "stem"]).filter(is_new)
                    yield from _alike(found.filter(pc.is_valid(found["cause"])), pulls)


def _alike(verdicts: pa.Table, pulls: Mapping[str, str]) -> Iterator[_Verdict]:
    rows = pa.array(range(len(verdicts)), pa.int64())
    alike = verdicts.append_column("row", rows).group_by(["stem", "source", "fingerprint", "cause"], False)
    found = alike.aggregate([("row", "min"), ("row", "count")])
    for told, letters in zip(verdicts.take(found["row_min"]).to_pylist(), found["row_count"], strict=True):
        yield pulls[told["stem"]], letters.as_py(), told


def _classify_alone(workspace: Workspace, new: Sequence[Manifest]) -> Iterator[_Verdict]:
    from dlq.analyzers import letters, topology
    from dlq.analyzers.rules import classify_letters

    classify = classify_letters(topology.facts(workspace.store, workspace.settings))
    for manifest in new:
        try:
            found = workspace.store.parquet(manifest.segment) if manifest.rows else None
            for group in letters.read(found, manifest.rows) if found else ():
                for letter in group.letters:
                    verdict = classify(letter)[0]._asdict() | {"source": letter.source}
                    yield manifest.pull_id, 1, verdict
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(f"{manifest.segment} in the archive cannot be read: {error}") from error


def _count(
    workspace: Workspace, pull_ids: Collection[str], verdicts: Iterable[_Verdict], code: ExitCode
) -> Triage:
    causes: dict[str, Counter[str]] = {pull_id: Counter() for pull_id in pull_ids}
    failures: Counter[str] = Counter()
    examples: dict[str, Mapping[str, Any]] = {}
    for pull_id, letters, verdict in verdicts:
        causes[pull_id][verdict["cause"]] += letters
        failures[verdict["fingerprint"]] += letters
        examples.setdefault(verdict["fingerprint"], verdict)
    told = [
        (n, _cause(workspace, examples[key]), describe_failure(examples[key]))
        for key, n in failures.most_common()
    ]
    of_pull = {pull_id: dict(found.most_common()) for pull_id, found in causes.items()}
    return Triage(of_pull, told, failures.total(), code)


def describe_failure(verdict: Mapping[str, Any]) -> str:
    """Return the first line of what went wrong: the exception, else the evidence."""
    name, message = verdict["exception_class"], verdict["exception_message"]
    parts = [name.rpartition(".")[2], message] if name else [message or verdict["evidence"]]
    return next(iter(": ".join(part for part in parts if part).strip().splitlines()), "")


def _cause(workspace: Workspace, verdict: Mapping[str, Any]) -> str:
    """Name a cause in the words of its broker's people, where the configuration tells the broker."""
    source = workspace.settings.sources.get(verdict["source"])
    broker = workspace.settings.brokers.get(source.broker) if source else None
    return cause_in_words(str(verdict["cause"]), [broker.kind if broker else None], verdict["proof"])


_BACK = ("record_id", "cause", "exception_class", "exception_message", "evidence", "failure_text")


def list_came_back(workspace: Workspace, plan: str, classify: bool = True) -> list[dict[str, Any]]:
    """Return the newest letters of `plan` that died again: `record_id, cause, failure` (in a line). Those
    that no analysis has classified yet are classified now, with `classify`, else told by their text."""
    from dlq.archive import views
    from dlq.operations.reading.views import open_views
    from dlq.replay.came_back import newest

    with suppress(DlqError):  # without a verdict they are told by their text
        if classify:
            analyze_new(workspace)
    with closing(open_views(workspace)) as connection:
        ids = newest(connection, plan, _MOST_BACK)
        if not ids:
            return []
        pages = [views.page_of(connection, record_id) for record_id in ids]
        page = {file: set().union(*(one.get(file, ()) for one in pages)) for file in set().union(*pages)}
        found = views.newest(connection, _BACK, views.on_page(page), _MOST_BACK)
        return list(map(_describe_back, found.rows))


def _describe_back(row: Sequence[Any]) -> dict[str, Any]:
    found = dict(zip(_BACK, row, strict=True))
    text = (
        describe_failure(found)
        if found["cause"]
        else next(iter((found["failure_text"] or "").splitlines()), "")
    )
    return {"record_id": found["record_id"], "cause": found["cause"], "failure": text[:_LONGEST]}
