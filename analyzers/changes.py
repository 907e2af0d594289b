"""What is different from the analysis before."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow.parquet as pq

from dlq.archive.analyses import Analysis
from dlq.archive.store import Store


def counted(store: Store, verdicts: Iterable[str], column: str) -> Counter[str | None]:
    """How often each value of a column is in these files of verdicts; one batch is in memory at a time."""
    found: Counter[str | None] = Counter()
    for values in _values(store, verdicts, column):
        names, counts = (part.to_pylist() for part in values.value_counts().flatten())
        found.update(dict(zip(names, counts, strict=True)))
    return found


def _values(store: Store, files: Iterable[str], column: str) -> Iterator[Any]:
    for name in files:
        with pq.ParquetFile(store.parquet(name), read_dictionary=[column]) as file:
            yield from (batch.column(0) for batch in file.iter_batches(columns=[column]))


def against(
    store: Store, last: Analysis | None, causes: Mapping[str, int], verdicts: Iterable[str]
) -> dict[str, Any]:
    """`{since: analysis, causes: {cause: difference}, new_fingerprints: n}`; empty for the first one."""
    if last is None:
        return {}
    names = sorted({*causes, *last.causes})
    differences = {name: causes.get(name, 0) - last.causes.get(name, 0) for name in names}
    before, now = (
        counted(store, files, "fingerprint").keys() for files in (last.tables["verdicts"], verdicts)
    )
    return {
        "since": last.analysis,
        "causes": {name: difference for name, difference in differences.items() if difference},
        "new_fingerprints": len(now - before - {None}),
    }
