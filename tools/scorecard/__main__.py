"""The command of the scorecard: runs rows one at a time, and writes latest.json and the page after each."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.scorecard import card, page
from tools.scorecard.rows import ROWS
from tools.scorecard.runs import RunFailed, run


def main() -> int:
    """Run the rows that were asked for. Returns 1 if one of them could not be run; the others are written even so."""
    parser = argparse.ArgumentParser(prog="python -m tools.scorecard", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="only rows whose target has this in it")
    parser.add_argument("--budget", type=int, help="seconds for each row, in place of those in rows.py")
    parser.add_argument("--quick", action="store_true", help="the least of every clause, for a machine without time")
    parser.add_argument("--missing", action="store_true", help="only rows that latest.json does not have")
    parser.add_argument("--page", action="store_true", help="run nothing; write the page anew")
    words = parser.parse_args()
    there = card.read()
    had = {result.target for result in there.results} if there else set()
    failed = 0
    for row in () if words.page else ROWS:
        if (words.only and not any(part in row.target for part in words.only)) or (words.missing and row.target in had):
            continue
        try:
            result = run(row, Path(sys.prefix), budget=None if words.quick else words.budget or row.budget)
        except (RunFailed, subprocess.SubprocessError) as exc:
            sys.stderr.write(f"{row.store}: not run: {exc}\n")
            failed = 1
            continue
        card.write(card.with_result(card.read(), result, [row.target for row in ROWS]))
        counts = ", ".join(f"{number} {status}" for status, number in result.counts.items() if number)
        print(f"{row.store}: {counts}; {result.seconds} s", flush=True)
    page.write()
    return failed


if __name__ == "__main__":
    sys.exit(main())
