"""Runs: a plan is carried out, in steps, in order, or as a rehearsal."""
