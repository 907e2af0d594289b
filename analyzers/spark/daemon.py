"""Python workers of a local session, forked with the rules loaded: none of them has to load them again."""

import pyarrow.compute
import pyarrow.parquet  # noqa: F401
from pyspark.daemon import manager

import dlq.analyzers.spark.stores
import dlq.analyzers.spark.transactions
import dlq.analyzers.spark.verdicts  # noqa: F401

if __name__ == "__main__":
    manager()
