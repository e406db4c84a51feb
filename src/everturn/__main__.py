"""Runs the command: `python -m everturn` is `everturn`."""

from everturn.cli import main

if __name__ == "__main__":
    main()
