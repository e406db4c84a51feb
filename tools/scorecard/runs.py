"""Runs one row of the scorecard, and records what its report says. It judges nothing."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import time
from pathlib import Path

import msgspec

from everturn.testing.report import read_json
from everturn.testing.results import ClauseResult, RunReport
from tools.scorecard.card import Finding, Machine, Result
from tools.scorecard.rows import SEED, Row

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "build" / "scorecard"
_SPARE = 900  # seconds over the budget: imports, hanging calls that are given back, the end of servers
_VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


class RunFailed(Exception):
    """A run ended without a report; the text has its last words."""


def run(row: Row, venv: Path, *, budget: int | None) -> Result:
    """Run a row in the environment that has its packages: for `budget` seconds, or the least of every clause (None).

    Raises RunFailed, subprocess.TimeoutExpired.
    """
    bin_folder = (venv / row.environment if row.environment else venv).absolute() / "bin"
    versions = _versions(bin_folder, row.packages)
    command = row.command(budget)
    REPORTS.mkdir(parents=True, exist_ok=True)
    report_file = REPORTS / f"{row.name}.json"
    report_file.unlink(missing_ok=True)
    files = ["--json", str(report_file), "--html", str(report_file.with_suffix(".html"))]
    work = OtherWork()
    done = subprocess.run(  # noqa: S603 - our own command
        [str(bin_folder / command[0]), *command[1:], *files],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=3 * (budget or 0) + _SPARE,
        check=False,
    )
    busy = work.processors()
    if done.returncode not in {0, 1} or not report_file.exists():
        raise RunFailed(
            f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout[-800:]}{done.stderr[-800:]}"
        )
    return result_of(row, read_json(report_file), budget=budget, versions=versions, commit=_commit(), busy=busy)


def result_of(
    row: Row, report: RunReport, *, budget: int | None, versions: dict[str, str], commit: str, busy: float | None
) -> Result:
    """Record a report as a row."""
    findings = [_finding(clause) for clause in report.clauses if clause.status in {"broken", "untested"}]
    return Result(
        store=row.store,
        target=row.target,
        command=shlex.join(row.command(budget)),
        contract=report.contract_version,
        clauses=len(report.clauses),
        started=report.started,
        seconds=round(report.seconds, 1),
        budget=budget,
        seed=SEED if report.seed is None else report.seed,
        everturn=report.versions["everturn"],
        commit=commit,
        versions=versions,
        machine=Machine(
            system=f"{platform.system()} {platform.machine()}",
            python=f"{platform.python_implementation()} {report.versions['python']}",
            processors=os.cpu_count() or 0,
            nice=os.nice(0),
            busy_elsewhere=busy,
        ),
        counts=report.counts,
        holds=tuple(clause.id for clause in report.clauses if clause.status == "holds"),
        not_offered=tuple(clause.id for clause in report.clauses if clause.status == "not_offered"),
        findings=tuple(sorted(findings, key=lambda finding: finding.status)),
        complaints=report.complaints,
    )


def _finding(clause: ClauseResult) -> Finding:
    first = clause.violations[0] if clause.violations else None
    detail = "; ".join(part for part in clause.detail.split("; ") if not part.startswith("history:"))
    return Finding(
        clause=clause.id,
        status=clause.status,
        kind=first.kind if first else "",
        story=_without_places(first.story.partition("\n")[0]) if first else "",
        detail=_without_places(detail),
        replay=clause.replay,
    )


def _without_places(text: str) -> str:
    """Leave out folders of this machine: a place of the kit is a temporary folder, and a package is where it is."""
    return re.sub(
        r"(?<![\w:/.])(?:/[\w.+-]+){2,}/?", lambda path: f".../{path[0].rstrip('/').rpartition('/')[2]}", text
    )


def _versions(bin_folder: Path, packages: tuple[str, ...]) -> dict[str, str]:
    command = [str(bin_folder / "python"), "-c", _VERSIONS, *packages]
    found = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own
    return msgspec.json.decode(found.stdout, type=dict[str, str])


def _commit() -> str:
    """Name the commit whose kit is run, with a + if it was changed since; empty outside a clone."""
    head = _git("rev-parse", "--short=10", "HEAD")
    return head + ("+" if _git("status", "--porcelain", "--", "src", "examples/peers") else "")


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)  # noqa: S603, S607
    return done.stdout.strip() if done.returncode == 0 else ""


class OtherWork:
    """The number of processors that other programs kept busy since this was made. Known on Linux only."""

    def __init__(self) -> None:
        """Start to watch."""
        self._start, self._elsewhere = time.monotonic(), _seconds_elsewhere()

    def processors(self) -> float | None:
        """Return the mean since the start; None where the system does not say."""
        now = _seconds_elsewhere()
        if now is None or self._elsewhere is None:
            return None
        return round(max(0.0, now - self._elsewhere) / (time.monotonic() - self._start), 1)


def _seconds_elsewhere() -> float | None:
    """Count processor seconds of all processes but this one and the children that were waited for."""
    try:
        _, *ticks = Path("/proc/stat").read_text("utf-8").splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = map(int, ticks[:8])
    busy = (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")
    return busy - sum(os.times()[:4])
