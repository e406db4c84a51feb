"""Runs the command: `python -m everturn.cli` is `everturn`."""

from everturn.cli import main

main()
