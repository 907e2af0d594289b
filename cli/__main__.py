"""`python -m dlq.cli`."""

from dlq.cli.app import main

main()
