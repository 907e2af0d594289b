"""Python workers of a local session, forked with the rules loaded: none of them has to load them again."""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

_LOADED = (
    "pyarrow.compute",
    "pyarrow.parquet",
    "dlq.analyzers.spark.stores",
    "dlq.analyzers.spark.transactions",
    "dlq.analyzers.spark.verdicts",
)


def _without_archives() -> None:
    """Take PySpark from its folder, where it is compiled. Spark puts its archives of the same first
    (`PythonUtils.sparkPythonPath`): each daemon would compile them anew, each task list their contents."""
    archives = [path for path in sys.path if path.endswith((".zip", ".jar"))]
    installed = PathFinder.find_spec("pyspark", [path for path in sys.path if path not in archives])
    if installed is None or installed.origin is None:
        return
    home = os.path.dirname(os.path.realpath(installed.origin))
    for path in archives:
        if os.path.realpath(path).startswith(f"{home}{os.sep}"):
            sys.path.remove(path)
            sys.path_importer_cache.pop(path, None)


if __name__ == "__main__":
    _without_archives()
    for name in _LOADED:
        import_module(name)
    import_module("pyspark.daemon").manager()
