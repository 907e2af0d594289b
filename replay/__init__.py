"""The way back: plans, runs, the ledger, and what is proven of all three."""
