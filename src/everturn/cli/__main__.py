"""`python -m everturn.cli`, for where the command itself is not on the path."""

from everturn.cli import main

main()
