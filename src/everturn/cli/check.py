"""The command `check`: the contract, run on any memory store.

It parses and prints. testing/kit/runner.py runs the clauses, testing/report makes the report.
"""

from __future__ import annotations

import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from everturn.cli.output import clean, console

if TYPE_CHECKING:
    from everturn.testing.kit.environment import Environment
    from everturn.testing.kit.factory_text import Home
    from everturn.testing.kit.runner import Chosen
    from everturn.testing.kit.target import Target
    from everturn.testing.results import RunReport
    from everturn.testing.shapes import Shape

HISTORIES = Path(".everturn")


class ReportFiles(NamedTuple):
    """Files to write the report to, each in its form, in the order in which `_finish` writes them."""

    json: Path | None
    html: Path | None
    badge: Path | None
    summary: Path | None


def check(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="A store URL, or package.module:factory.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run the least of every clause, in parallel: about 10 seconds."),
    ] = False,
    budget: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="The time that the run may take; default: 60.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Repeat a run: fixes inputs, order, pauses and kills.")] = None,
    stop_at_first: Annotated[bool, typer.Option("-x", help="Stop at the first broken clause.")] = False,
    clause: Annotated[
        list[str] | None,
        typer.Option(metavar="ID[@N]", help="Only this clause; with @N, only at point N of its sweep."),
    ] = None,
    layers: Annotated[list[str] | None, typer.Option(metavar="LAYER,...", help="Only these layers.")] = None,
    contract: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The version of the contract: 1 or 2; default: the latest.")
    ] = None,
    use_server: Annotated[
        bool, typer.Option("--use-server", help="Use the server of the URL, in a namespace that is removed.")
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of known failures, each with its reason.")
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML page.")] = None,
    badge: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the JSON of a badge, for shields.io/endpoint.")
    ] = None,
    summary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append the report as Markdown, for $GITHUB_STEP_SUMMARY.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A report of --json: what it has broken is known, not new.")
    ] = None,
    soak: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Repeat for so many minutes, with a new seed each time.")
    ] = None,
    judge: Annotated[Path | None, typer.Option(metavar="FILE", help="Judge a saved history; run nothing.")] = None,
    list_clauses: Annotated[bool, typer.Option("--list", help="List the clauses; run nothing.")] = False,
    explain: Annotated[
        str | None, typer.Option(metavar="ID", help="Print the promise of a clause, and the incident behind it.")
    ] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write a factory, for the store that TARGET names, and a CI job.")
    ] = False,
    kept_in: Annotated[
        str | None,
        typer.Option(metavar="HOME", help="With --init: what the store is kept in: files, redis, postgres or memory."),
    ] = None,
) -> None:
    """Run the contract on any memory store, ours or yours.

    TARGET is a URL or a factory. A URL only names a backend and its options; your data is not touched: files go to a
    new directory, and servers are started for the run. A factory is called with a directory to work in; its signature
    says what it supports.

    Exit code 0: every clause that applies holds. 1: a clause is broken, or was not tested. 2: the run could not start.

    \b
    Examples:
      everturn check sqlite:///memory.db --quick
      everturn check myapp.memory:factory --html report.html
      everturn check myapp.memory:factory --clause append-append@3 --seed 7
      everturn check myapp.memory:factory --baseline known.json --badge badge.json
      everturn check --init myapp.memory:Memory
      everturn check --judge history.jsonl
    """
    from everturn.testing.history import BadHistory
    from everturn.testing.kit.selection import BadChoice
    from everturn.testing.kit.target import TargetError
    from everturn.testing.servers import ServerError

    files = ReportFiles(json=json, html=html, badge=badge, summary=summary)
    try:
        if init:
            _init(target, kept_in)
        elif list_clauses or explain:
            _tell(explain, layers or [], contract)
        elif judge is not None:
            _finish(_judged(judge), files)
        elif target is None:
            _refuse(
                "give a TARGET: a store URL, or package.module:factory. everturn check --init writes one to fill in"
            )
        else:
            report = _checked(
                _parsed(target, use_server=use_server),
                _chosen(clause or [], layers or [], contract),
                contract=contract,
                quick=quick,
                budget=budget,
                seed=seed,
                stop_at_first=stop_at_first,
                ledger=ledger,
                baseline=baseline,
                soak=soak,
            )
            _finish(report, files)
    except (BadChoice, BadHistory, ServerError, TargetError, FileExistsError) as exc:
        _refuse(str(exc))


def _refuse(why: str) -> NoReturn:
    sys.stderr.write("".join(f"everturn: {clean(line)}\n" for line in why.splitlines()[:1]))
    sys.stderr.write("".join(f"  {clean(line)}\n" for line in why.splitlines()[1:]))
    raise typer.Exit(2)


def _parsed(target: str, *, use_server: bool) -> Target:
    from everturn.testing.kit.target import parse

    return parse(target, use_server=use_server)


def _chosen(names: list[str], layers: list[str], contract: str | None) -> list[Chosen]:
    from everturn.testing.kit.selection import chosen, of_version

    return chosen(of_version(contract), names, layers)


# --- without a run ---------------------------------------------------------------------------------------------------


def _init(target: str | None, kept_in: str | None) -> None:
    """Write the files to start from: for a class that was named, or for one that is asked for at a terminal."""
    from everturn.testing.kit.factory_text import FILL_IN, blank, home_of, look_at, source
    from everturn.testing.kit.scaffold import write_start

    asked = sys.stdin.isatty()
    if target is None and asked:
        target = typer.prompt("Your store, as package.module:Class (empty: not known yet)", default="") or None
    if target is None:
        text = blank(_asked_shape() if asked else None)
    else:
        store = look_at(target)
        unseen = "none of its methods has a name that the kit knows" if store.is_adapted else "its shape is not seen"
        typer.echo(f"{store.name}: {store.shape.name if store.shape else unseen}")
        home = kept_in or home_of(store)
        if home is None and asked:
            home = typer.prompt("What is it kept in? files, redis, postgres or memory", default="files")
        text = source(store, _home(home or "files"))
    for path in write_start(Path(), text):
        typer.echo(f"wrote {path}")
    first = "Fill in memory_target.py, then" if target is None or FILL_IN in text else "Next"
    typer.echo(f"{first}: everturn check memory_target:factory --quick")


def _asked_shape() -> type[Shape] | None:
    from everturn.testing.shapes import SHAPES

    for number, shape in enumerate(SHAPES, 1):
        typer.echo(f"{number:>3}  {shape.name:<36} {shape.methods()}")
    number = typer.prompt("Which of these is it like? 0: none, or I do not know", type=int, default=0)
    return SHAPES[number - 1] if 0 < number <= len(SHAPES) else None


def _home(name: str) -> Home:
    from everturn.testing.kit.factory_text import HOMES

    for home in HOMES:
        if home == name:
            return home
    _refuse(f"--kept-in is {', '.join(HOMES)}; not {name!r}")


def _tell(explain: str | None, layers: list[str], contract: str | None) -> None:
    from everturn.testing.kit.selection import chosen, find, of_version

    clauses = of_version(contract)
    screen = console()
    if explain:
        clause = find(clauses, explain.partition("@")[0])
        screen.print(f"{clause.id} ({clause.layer})")
        screen.print(f"  promise   {clause.promise}", soft_wrap=True)
        screen.print(f"  incident  {clause.incident}", soft_wrap=True)
        needs = ", ".join(need.replace("|", " or ") for need in clause.needs)
        screen.print(f"  needs     {needs or 'nothing but storing and reading'}", soft_wrap=True)
        screen.print(f"  since     contract {clause.since}", soft_wrap=True)
        screen.print(f"  remedy    {clause.remedy}", soft_wrap=True)
        return
    for one in chosen(clauses, (), layers):
        screen.print(f"{one.clause.layer:<12} {one.clause.id:<28} {one.clause.promise}", soft_wrap=True)


def _judged(path: Path) -> RunReport:
    from everturn.testing.history import judge_file

    return judge_file(path)


# --- a run -----------------------------------------------------------------------------------------------------------


def _checked(
    target: Target,
    clauses: list[Chosen],
    *,
    contract: str | None,
    quick: bool,
    budget: float | None,
    seed: int | None,
    stop_at_first: bool,
    ledger: Path | None,
    baseline: Path | None,
    soak: float | None,
) -> RunReport:
    from everturn.testing.kit.environment import Environment
    from everturn.testing.kit.runner import DEFAULT_SECONDS, QUICK_SECONDS, Runner, run_all
    from everturn.testing.kit.selection import read_baseline, read_ledger
    from everturn.testing.report import Progress
    from everturn.testing.results import CONTRACT_VERSION

    version = CONTRACT_VERSION if contract is None else contract
    known = read_ledger(ledger) if ledger is not None else {}
    before = read_baseline(baseline) if baseline is not None else {}
    seconds = budget if budget is not None else QUICK_SECONDS if quick else DEFAULT_SECONDS
    ends = time.monotonic() + 60 * (soak or 0)
    while True:
        run = Environment(target, seed=secrets.randbelow(10**6) if seed is None else seed, quick=quick)
        try:
            runner = Runner(
                run,
                clauses,
                budget=seconds,
                known=known,
                baseline=before,
                histories=HISTORIES,
                contract=version,
                may_overrun=budget is None,
            )
            with _terminated_as_interrupted(), Progress(console(), [one.clause.id for one in clauses]) as progress:
                report = run_all(
                    runner,
                    clauses,
                    stop_at_first=stop_at_first,
                    begin=lambda clause: progress.begin(clause.id),
                    end=progress.end,
                )
        except BaseException:
            run.close()
            raise
        report = _closed(run, report)
        if report.exit_code or time.monotonic() >= ends:
            return report
        seed = None


def _closed(run: Environment, report: RunReport) -> RunReport:
    """Close the environment. If that fails, the error joins the complaints; the findings are reported all the same."""
    import msgspec

    try:
        run.close()
    except Exception as exc:  # noqa: BLE001 - as the docstring says
        complaint = f"the kit itself failed when it ended its processes and servers: {exc!r}"
        return msgspec.structs.replace(report, complaints=(*report.complaints, complaint))
    return report


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end the run as Ctrl-C does, with a report: a CI system that runs out of time sends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _finish(report: RunReport, files: ReportFiles) -> NoReturn:
    """Write the report everywhere. A file that cannot be written does not stop the others; its error is raised last."""
    from everturn.testing.report import append_summary, terminal, write_badge, write_html, write_json

    writers = (write_json, write_html, write_badge, append_summary)
    error: OSError | None = None
    for write, path in zip(writers, files, strict=True):
        try:
            if path is not None:
                write(report, path)
        except OSError as exc:
            error = exc
    terminal(report, console())
    if error is not None:
        raise error
    raise typer.Exit(report.exit_code)
