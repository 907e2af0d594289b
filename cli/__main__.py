"""`python -m dlq.cli`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder, where anybody's typer.py may lie

from dlq.cli.app import main

main()
