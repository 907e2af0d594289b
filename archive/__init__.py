"""The archive: segments and their commit protocol, checkpoints, views for looking, retention."""

from dlq.core.runtime.interpreter import without_module

with without_module("numpy"), without_module("pandas"):
    # These parts of pyarrow look for both, and pandas for its first array. Nothing here needs them, and to
    # import them takes longer than all of the rest.
    import pyarrow as pa
    import pyarrow._compute

    pa.array([])
