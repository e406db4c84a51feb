"""The commands for golden files of any SQLite database: golden show, golden diff. Neither changes anything."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from everturn.testing.golden.masks import Mask

HELP = """Show and compare SQLite files, as snapshot_db does.

\b
Examples:
  everturn golden show tests/snapshots/test_memory/test_rollback.sqlite
  everturn golden diff before.sqlite after.sqlite
"""

app = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.command()
def show(file: Annotated[Path, typer.Argument(metavar="FILE", help="A SQLite file.", show_default=False)]) -> None:
    """Print the schema and all rows of a SQLite file, ordered by primary key.

    Files with the same contents give the same text, so git can compare files by it.

    \b
    Examples:
      everturn golden show tests/snapshots/memory_test.sqlite
      git config diff.sqlite.textconv "everturn golden show"   # and in .gitattributes: *.sqlite diff=sqlite
    """
    from everturn.testing.golden import read_database as reading
    from everturn.testing.golden import render as rendering

    with _one_line_for_a_mistake():
        _print(rendering.show(reading.read(file)))


@app.command()
def diff(
    expected: Annotated[Path, typer.Argument(metavar="EXPECTED", help="A SQLite file.", show_default=False)],
    actual: Annotated[Path, typer.Argument(metavar="ACTUAL", help="Another SQLite file.", show_default=False)],
    mask: Annotated[
        list[str] | None, typer.Option(metavar="TABLE.COLUMN", help="Mask a column; '*' for any part. May be repeated.")
    ] = None,
    pattern: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="Mask matches in any text. May be repeated.")
    ] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Mask uuid, ulid, timestamp. May be repeated.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="The number of rows to show of each kind of difference.")
    ] = None,
) -> None:
    """Compare the contents of two SQLite files: schema, header fields, every row.

    Exit code 0: equal. 1: different. 2: one cannot be read.

    \b
    Examples:
      everturn golden diff tests/snapshots/test_memory/test_rollback.sqlite /tmp/actual.sqlite
      everturn golden diff a.sqlite b.sqlite --mask snapshots.created_at --type uuid
    """
    from everturn.testing.golden import compare
    from everturn.testing.golden import read_database as reading
    from everturn.testing.golden import render as rendering

    with _one_line_for_a_mistake():
        masks = tuple(_masks(mask or [], pattern or [], type_ or []))
        difference = compare.compare(reading.read(expected), reading.read(actual), masks)
        for idle in difference.idle:
            sys.stderr.write(f"everturn: {idle}\n")
        if difference.is_none:
            return
        _print(rendering.render(difference, limit=limit))
    raise typer.Exit(1)


def _masks(columns: list[str], patterns: list[str], types: list[str]) -> Iterator[Mask]:
    from everturn.testing.golden.masks import Mask

    if columns:
        yield Mask.of(columns)
    for pattern in patterns:
        yield Mask.of((), pattern=pattern)
    if types:
        yield Mask.of((), types=types)


def _print(lines: Iterable[str]) -> None:
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # whatever the terminal can show
    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()  # the reader (head, less) has ended; Python would complain at exit


@contextmanager
def _one_line_for_a_mistake() -> Iterator[None]:
    from everturn.testing.golden.errors import GoldenError

    try:
        yield
    except GoldenError as error:
        sys.stderr.write(f"everturn: {error}\n")
        raise typer.Exit(2) from None
