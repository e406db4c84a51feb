"""The command that draws how a session came to be: turns, snapshots, rollbacks, undo, as a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from everturn.cli.arguments import JSON, SESSION, URL, opened, session_in
from everturn.cli.entries import one_line
from everturn.cli.output import console, print_json, print_paged
from everturn.errors import InvalidInput
from everturn.model import Change, Entry, Snapshot
from everturn.store.sync import MemoryStore
from everturn.ui import change_graph
from everturn.ui.change_graph import Moment
from everturn.ui.times import at_time

ALL = 1024 * 1024
BEFORE_WORDS = len("  1234 2026-11-16 02:14:09  ")
AT_HEAD = "  <- head"


def log(
    url: URL,
    session: SESSION,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many of the latest changes.")] = 100,
    json: JSON = False,
) -> None:
    """Draw how a session came to be, as a graph.

    Turns (*) and other changes (o), newest first, branches side by side. A rollback moves the head and destroys
    nothing, so what it left stays as a branch (dim) until compact. At least the latest 1,024 changes are remembered.

    \b
    Examples:
      everturn log sqlite:///memory.db customer-42
      everturn log sqlite:///memory.db customer-42 -n 20
      everturn log sqlite:///memory.db customer-42 --json | jq 'select(.kind=="rollback")'
    """
    with opened(url, look=True) as store:
        session_in(store, session)
        changes = store.changes(session, limit=ALL)
        snapshots = {snapshot.id: snapshot for snapshot in store.list_snapshots(session)}
        told = change_graph.moments(
            changes, _taken_at(changes, snapshots), lambda change: _after(store, session, change)
        )
        latest = told[-limit:]
        if json:
            print_json(_as_json(moment) for moment in reversed(latest))
            return
        entries = _entries(store, session, change_graph.tips(latest))
    print_paged(_drawn(told, limit, snapshots, entries, console().width))


def _taken_at(changes: list[Change], snapshots: dict[str, Snapshot]) -> dict[str, int]:
    """The version every snapshot was taken at, deleted ones included as far as the log goes."""
    return {snapshot.id: snapshot.version for snapshot in snapshots.values()} | {
        change.snapshot: change.version for change in changes if change.kind == "snapshot" and change.snapshot
    }


def _after(store: MemoryStore, session_id: str, change: Change) -> int | None:
    """The seq that a replace put its entries after; None if that state has been reclaimed."""
    first = change.seqs[0] if change.seqs else None
    try:
        entries = store.state(session_id, at=change.version).entries
    except InvalidInput:
        return None
    before = [entry.seq or 0 for entry in entries if first is None or (entry.seq or 0) < first]
    return before[-1] if before else 0


def _entries(store: MemoryStore, session_id: str, versions: list[int]) -> dict[int, Entry]:
    """What the branches that end with these turns show, by seq."""
    found: dict[int, Entry] = {}
    for version in versions:
        try:
            state = store.state(session_id, at=version)
        except InvalidInput:
            continue  # reclaimed
        found.update((entry.seq or 0, entry) for entry in state.entries)
    return found


def _as_json(moment: Moment) -> dict[str, Any]:
    change: dict[str, Any] = msgspec.to_builtins(moment.change)
    return change | {"head": moment.head} | ({"parent": moment.parent} if moment.is_turn else {})


def _drawn(
    told: list[Moment], limit: int, snapshots: dict[str, Snapshot], entries: dict[int, Entry], width: int
) -> Iterator[Text]:
    rows = change_graph.graph(told[-limit:])
    lanes = max((len(row.drawn) for row in rows), default=0)
    path = change_graph.on_path(told)
    newest = told[-1] if told else None
    for row in rows:
        line = Text(f"{row.drawn:<{lanes}}  ", style="cyan")
        if row.moment is not None:
            left = row.moment.is_turn and row.moment.version not in path
            is_head = newest is not None and row.moment.is_turn and row.moment.version == newest.head
            room = width - lanes - BEFORE_WORDS - (len(AT_HEAD) if is_head else 0)
            words, style = _words(row.moment, snapshots, entries, max(room, 20))
            line.append(f"{row.moment.version:>4} ", style="bold")
            line.append(f"{at_time(row.moment.change.created_at)}  ", style="dim")
            line.append(words, style="dim" if left else style)
            if is_head:
                line.append(AT_HEAD, style="bold green")
        yield line
    if len(told) > limit:
        yield Text(f"... and {len(told) - limit:,} earlier changes; -n {len(told)} shows all", style="dim")


def _words(moment: Moment, snapshots: dict[str, Snapshot], entries: dict[int, Entry], longest: int) -> tuple[str, str]:
    change = moment.change
    if not moment.is_turn:
        name = ""
        if change.snapshot:
            gone = "" if change.snapshot in snapshots or change.kind == "delete_snapshot" else " (deleted since)"
            label = change.label or (snapshots[change.snapshot].label if change.snapshot in snapshots else None)
            name = f" {label!r}" if label else f" {change.snapshot}"
            name = f"{' to' if change.kind == 'rollback' else ''}{name}{gone}"
        return f"{change.kind}{name}", "magenta" if change.kind == "snapshot" else "yellow"
    seen = [entries[seq] for seq in change.seqs if seq in entries]
    kind = "" if change.kind == "append" else f"{change.kind}: "
    if not seen:
        return f"{kind}{len(change.seqs)} entries, no longer shown", "dim"
    more = f" (+{len(change.seqs) - 1})" if len(change.seqs) > 1 else ""
    return f"{kind}{one_line(seen[0], longest - len(kind) - len(more))}{more}", ""
