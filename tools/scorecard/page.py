"""Writes docs/scorecard.md from latest.json and causes.toml. It decides nothing about a store.

A finding whose cause nobody examined, for exactly the versions of its row, is shown as *not examined*.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from tools.scorecard import card
from tools.scorecard.card import Card, Finding, Result
from tools.scorecard.rows import PEERS, ROWS

PAGE = Path(__file__).parents[2] / "docs" / "scorecard.md"
CAUSES = Path(__file__).with_name("causes.toml")
_NAMED = 10  # untested clauses of one reason; of more, only their number is told
_LONGEST = 220  # characters of a story; --json and --html have it whole

TOP = Path(__file__).with_name("page_top.md")


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An examined cause of findings. `version` is "package x.y"; `shown` says how it is known."""

    targets: tuple[str, ...]
    clauses: tuple[str, ...]
    version: str
    cause: str
    shown: Literal["source", "script", "source and script", "documented", "earlier"]

    def explains(self, result: Result, finding: Finding) -> bool:
        """Whether this is the cause of a finding, at the version of the row."""
        package, _, version = self.version.rpartition(" ")
        return (
            result.target.removeprefix(PEERS) in self.targets
            and finding.clause in self.clauses
            and result.versions.get(package) == version
        )


def causes() -> tuple[Cause, ...]:
    """Read the causes that were examined."""
    return msgspec.convert(tomllib.loads(CAUSES.read_text("utf-8"))["cause"], tuple[Cause, ...])


def write() -> None:
    """Write the page anew. Without latest.json there is none."""
    found = card.read()
    if found is not None:
        PAGE.write_text(page(found, causes()), "utf-8")


def page(found: Card, known: tuple[Cause, ...]) -> str:
    """Return the whole page."""
    latest = max(found.results, key=lambda result: result.started)
    machines = sorted(
        {f"{one.machine.system}, {one.machine.processors} processors, {one.machine.python}" for one in found.results}
    )
    example = next((one.command for one in found.results if one.target.startswith(PEERS)), latest.command)
    top = TOP.read_text("utf-8").format(
        contract=found.contract,
        everturn=latest.everturn,
        day=latest.started[:10],
        schema=found.schema,
        machine="; ".join(machines),
        example=example,
        peers=PEERS,
    )
    rows = sorted(found.results, key=lambda result: (not result.store.startswith("everturn"), result.store))
    table = "".join(map(_row, rows))
    sections = [part for framework, its in _by_framework(rows).items() for part in _section(framework, its, known)]
    return top + table + _not_run(rows) + "".join(sections)


def _not_run(rows: list[Result]) -> str:
    there = {result.target for result in rows}
    missing = [f"{row.store} (`{row.target.removeprefix(PEERS)}`)" for row in ROWS if row.target not in there]
    return f"\nNot run for this page, or not through on that machine: {', '.join(missing)}.\n" if missing else ""


def _machine(its: card.Machine) -> str:
    return f"{its.system}, {its.processors} processors, {its.python}, nice {its.nice}"


def _row(result: Result) -> str:
    counts = result.counts
    numbers = " | ".join(str(counts.get(status, 0)) for status in ("holds", "broken", "untested", "not_offered"))
    busy = "" if result.machine.busy_elsewhere is None else f"{result.machine.busy_elsewhere:g}"
    target = result.target.removeprefix(PEERS)
    run = "quick" if result.budget is None else f"{result.budget} s"
    return (
        f"| {result.store} | `{target}` | {run} | {numbers} | {result.seconds:.0f} | {busy} | {result.started[:10]} |\n"
    )


def _by_framework(rows: list[Result]) -> Mapping[str, list[Result]]:
    """Group rows by the words before the class: "OpenAI Agents `SQLiteSession`"."""
    groups: dict[str, list[Result]] = {}
    for result in rows:
        groups.setdefault(result.store.partition(" `")[0].partition(",")[0].removesuffix(" compaction"), []).append(
            result
        )
    return groups


def _section(framework: str, rows: list[Result], known: tuple[Cause, ...]) -> Iterator[str]:
    versions = {name: version for row in rows for name, version in row.versions.items()}
    commits = sorted({row.commit for row in rows})
    yield f"\n## {framework}\n\n{', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}; "
    yield f"the kit of commit {', '.join(commits)}.\n"
    for row in rows:
        store = row.store.removeprefix(framework).strip(", ") or row.store
        yield f"\n**{store}**: `{row.command}`\n"
        bad = [finding for finding in row.findings if finding.status == "broken"]
        untested = [finding for finding in row.findings if finding.status == "untested"]
        if not row.findings and not row.complaints:
            yield "\nEvery clause that it offers holds.\n"
            continue
        yield "\n"
        yield from _broken(row, bad, known)
        yield from _untested(untested)
        yield from (f"- The run itself: {complaint}\n" for complaint in row.complaints)


def _broken(row: Result, findings: list[Finding], known: tuple[Cause, ...]) -> Iterator[str]:
    left = list(findings)
    for cause in known:
        its = [finding for finding in left if cause.explains(row, finding)]
        left = [finding for finding in left if finding not in its]
        if its:
            shown = "examined [earlier](peers.md)" if cause.shown == "earlier" else f"shown by: {cause.shown}"
            yield f"- {_names(its)}: {cause.cause} ({shown})\n"
    for finding in left:
        yield f"- {_names([finding])}, *not examined*: {_told(finding)}\n"


def _untested(findings: list[Finding]) -> Iterator[str]:
    """Yield the clauses without a verdict, those of one reason together."""
    by_reason: dict[str, list[Finding]] = {}
    for finding in findings:
        reason = "the budget was used up before" if "budget of" in finding.detail else _short(finding.detail)
        by_reason.setdefault(reason, []).append(finding)
    for reason, its in by_reason.items():
        which = _names(its) if len(its) <= _NAMED else f"{len(its)} clauses (latest.json names them)"
        yield f"- untested: {which}: {_plain(reason)}\n"


def _names(findings: list[Finding]) -> str:
    return ", ".join(f"`{finding.clause}`" for finding in findings)


def _told(finding: Finding) -> str:
    kind = f"{finding.kind.replace('_', '-')}: " if finding.kind else ""
    return _plain(kind + _short(finding.story or finding.detail))


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST].rstrip()} ..."


def _plain(text: str) -> str:
    """Escape what Markdown or HTML would read as markup."""
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, f"\\{mark}")
    return "".join(char if char.isprintable() else " " for char in text)
