"""What is different from the analysis before."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlq.analyzers.reading import read_files, spark_schema
from dlq.archive.analyses import VERDICTS, Analysis
from dlq.archive.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def against(
    spark: "SparkSession",
    store: Store,
    last: Analysis | None,
    counts: Mapping[str, int],
    verdicts: Sequence[str],
) -> dict[str, Any]:
    """`{since: analysis, causes: {cause: difference}, new_fingerprints: n}`; empty for the first one."""
    if last is None:
        return {}
    causes = {
        cause: counts.get(cause, 0) - last.causes.get(cause, 0) for cause in sorted({*counts, *last.causes})
    }
    schema = spark_schema(VERDICTS)
    before, after = (
        read_files(spark, store, files, schema).select("fingerprint").distinct()
        for files in (last.tables["verdicts"], verdicts)
    )
    return {
        "since": last.analysis,
        "causes": {cause: difference for cause, difference in causes.items() if difference},
        "new_fingerprints": after.join(before, on="fingerprint", how="left_anti").count(),
    }
