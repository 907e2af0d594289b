"""`python -m dlq.cli`: what `dlq serve` begins, and hands a proven name, which `dlq` takes from nobody."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder, where anybody's typer.py may lie

from dlq.cli.app import main
from dlq.replay.actor import take_over

main(proven=take_over())
