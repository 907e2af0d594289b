"""The way back: plans, runs, the ledger, and what is proven of all three."""

import dlq.archive  # noqa: F401 (it brings pyarrow without numpy, before a module here asks for it)
