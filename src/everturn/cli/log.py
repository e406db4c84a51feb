"""The command `log`: the changes of a session as a graph of turns, snapshots, rollbacks and undo."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
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
from everturn.ui.descriptions import change_in_words
from everturn.ui.times import at_time

ALL = 1024 * 1024
BEFORE_WORDS = len("  1234 2026-11-16 02:14:09  ")
AT_HEAD = "  <- head"


def log(
    url: URL,
    session: SESSION,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The number of latest changes to draw.")] = 100,
    json: JSON = False,
) -> None:
    """Draw the changes of a session as a graph.

    Shows turns (*) and other changes (o), newest first. A rollback deletes nothing: the turns that it left are drawn as
    a branch (dim) until compact deletes them. At least the latest 1,024 changes are kept.

    \b
    Examples:
      everturn log sqlite:///memory.db customer-42
      everturn log sqlite:///memory.db customer-42 -n 20
      everturn log sqlite:///memory.db customer-42 --json | jq 'select(.kind=="rollback")'
    """
    with opened(url, for_reading=True) as store:
        session_in(store, session)
        changes = store.changes(session, limit=ALL)
        snapshots = {snapshot.id: snapshot for snapshot in store.list_snapshots(session)}
        taken = change_graph.taken_at(changes, snapshots.values())
        moments = change_graph.place_changes(changes, taken, partial(_after, store, session))
        latest = moments[-limit:]
        if json:
            print_json(_as_json(moment) for moment in reversed(latest))
            return
        entries = _entries(store, session, change_graph.tips(latest))
    print_paged(_drawn(moments, limit, snapshots, entries, console().width))


def _after(store: MemoryStore, session_id: str, change: Change, latest: int | None) -> int | None:
    """The seq that a replace put its entries after; None if that state has been reclaimed."""
    first = change.seqs[0] if latest is None and change.seqs else None if latest is None else latest + 1
    try:
        entries = store.state(session_id, at=change.version).entries
    except InvalidInput:
        return None
    before = [entry.seq or 0 for entry in entries if first is None or (entry.seq or 0) < first]
    return before[-1] if before else 0


def _entries(store: MemoryStore, session_id: str, versions: list[int]) -> dict[int, Entry]:
    """The entries on the branches that end with these turns, by seq."""
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
    moments: list[Moment], limit: int, snapshots: dict[str, Snapshot], entries: dict[int, Entry], width: int
) -> Iterator[Text]:
    rows = change_graph.graph(moments[-limit:])
    columns = max((len(row.drawn) for row in rows), default=0)
    path = change_graph.on_path(moments)
    newest = moments[-1] if moments else None
    for row in rows:
        line = Text(f"{row.drawn:<{columns}}  ", style="cyan")
        if row.moment is not None:
            left = row.moment.is_turn and row.moment.version not in path
            is_head = newest is not None and row.moment.is_turn and row.moment.version == newest.head
            room = width - columns - BEFORE_WORDS - (len(AT_HEAD) if is_head else 0)
            words, style = _words(row.moment, snapshots, entries, max(room, 20))
            line.append(f"{row.moment.version:>4} ", style="bold")
            line.append(f"{at_time(row.moment.change.created_at)}  ", style="dim")
            line.append(words, style="dim" if left else style)
            if is_head:
                line.append(AT_HEAD, style="bold green")
        yield line
    if len(moments) > limit:
        yield Text(f"... and {len(moments) - limit:,} earlier changes; -n {len(moments)} shows all", style="dim")


def _words(moment: Moment, snapshots: dict[str, Snapshot], entries: dict[int, Entry], longest: int) -> tuple[str, str]:
    change = moment.change
    if not moment.is_turn:
        labels = {snapshot.id: snapshot.label for snapshot in snapshots.values()}
        return change_in_words(change, labels), "magenta" if change.kind == "snapshot" else "yellow"
    seen = [entries[seq] for seq in change.seqs if seq in entries]
    kind = "" if change.kind == "append" else f"{change.kind}: "
    if not seen:
        return f"{kind}{len(change.seqs)} entries, no longer shown", "dim"
    more = f" (+{len(change.seqs) - 1})" if len(change.seqs) > 1 else ""
    return f"{kind}{one_line(seen[0], longest - len(kind) - len(more))}{more}", ""
