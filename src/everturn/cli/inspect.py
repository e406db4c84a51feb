"""Commands that read: sessions, show, snapshots, diff, tail. (log.py has log.) None of them changes anything."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Annotated, Literal

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from everturn.cli.arguments import JSON, SESSION, URL, WHERE, facts_in, opened, point_in, session_in
from everturn.cli.effects import effects_of, lease_of, line_of
from everturn.cli.entries import as_json, entry_lines
from everturn.cli.entry_windows import forward, latest, look
from everturn.cli.output import clean, console, print_json, print_paged
from everturn.core.numbers import count, lasting, size
from everturn.errors import SessionNotFound
from everturn.model import Change, Effect, Entry, SessionInfo, Snapshot
from everturn.model.held_lease import HeldLease
from everturn.store.sync import MemoryStore
from everturn.ui.descriptions import change_in_words, expiry, facts_in_words, lease_in_words
from everturn.ui.times import at_time

AT = Annotated[str | None, typer.Option("--at", metavar="POINT", help="A version, or a snapshot's id or label.")]


def sessions(
    url: URL,
    prefix: Annotated[str, typer.Argument(help="Only sessions whose id begins with this.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The number of sessions to list.")] = 50,
    page: Annotated[str | None, typer.Option(help="The page to list, as printed below the last one.")] = None,
    recent: Annotated[bool, typer.Option("--recent", "-r", help="Order by latest change, newest first.")] = False,
    where: WHERE = None,
    json: JSON = False,
) -> None:
    """List sessions, by id or by latest change.

    Ordered by id; with --recent by latest change, newest first (not on Redis). If there are more, the last line has
    the --page to list next.

    \b
    Examples:
      everturn sessions sqlite:///memory.db
      everturn sessions sqlite:///memory.db customer- --recent -n 10
      everturn sessions sqlite:///memory.db --where user=customer-42
      everturn sessions redis://localhost --json | jq -r .session_id
    """
    with opened(url, for_reading=True) as store:
        facts = facts_in(where)
        found = store.sessions(prefix, where=facts, limit=limit, page=page, order="recent" if recent else None)
    if json:
        print_json(found.sessions)
    elif not found.sessions:
        told = f" that begin with {prefix!r}" if prefix else ""
        console().print(f"no sessions{told}" + (f" with {' '.join(where)}" if where else ""))
    else:
        console().print(_table(found.sessions))
    if found.next is not None:
        sys.stderr.write(f"next page: --page {found.next}\n")


def _table(listed: tuple[SessionInfo, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", overflow="fold")
    for name in ("messages", "version", "snapshots", "size"):
        table.add_column(name, justify="right")
    table.add_column("changed")
    table.add_column("expires")
    has_facts = any(session.facts for session in listed)
    if has_facts:
        table.add_column("facts", overflow="fold")
    for session in listed:
        table.add_row(
            Text(clean(session.session_id)),
            f"{session.messages:,}",
            f"{session.version:,}",
            f"{session.snapshots:,}",
            size(session.bytes),
            f"{lasting(time.time() - session.changed_at)} ago",
            expiry(session),
            *([Text(clean(facts_in_words(session)))] if has_facts else []),
        )
    return table


def show(
    url: URL,
    session: SESSION,
    at: AT = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Only the latest N entries.")] = None,
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="Skip damaged entries; shows messages only.")
    ] = False,
    json: JSON = False,
) -> None:
    """Show a session, now or at an earlier version.

    Prints messages, tool calls, summaries and records, in order: the present history, or with --at the history at a
    version or snapshot. In a terminal, long output goes through less.

    \b
    Examples:
      everturn show sqlite:///memory.db customer-42
      everturn show sqlite:///memory.db customer-42 -n 20
      everturn show sqlite:///memory.db customer-42 --at "before the new prompt"
      everturn show sqlite:///memory.db customer-42 --json | jq -r 'select(.role=="user").content'
    """
    with opened(url, for_reading=True) as store:
        facts = session_in(store, session)
        point = point_in(store, session, at)
        done = effects_of(store, session) if point is None and not json else []
        held = lease_of(store, session) if point is None and not json else None
        moment = facts.version if point is None else point  # all windows are of one state
        reading = look(store, session, moment)

        def read(after: int, before: int) -> Sequence[Entry]:
            if skip_corrupt:
                return store.get_history(session, at=moment, after=after, before=before, on_corrupt="skip")
            return store.state(session, at=moment, after=after, before=before).entries

        if limit is None:
            entries: Iterable[Entry] = chain.from_iterable(forward(read, reading))
        else:
            entries = latest(read, reading, limit)
        if json:
            print_json(map(as_json, entries))
            return
        if point is not None:
            version = point if isinstance(point, int) else point.version
            facts = msgspec.structs.replace(facts, version=version, messages=reading.state.messages)
        print_paged(_conversation(facts, entries, limit, at, console().width, done, held))


def _conversation(
    facts: SessionInfo,
    entries: Iterable[Entry],
    limit: int | None,
    at: str | None,
    width: int,
    done: Sequence[Effect],
    held: HeldLease | None,
) -> Iterator[Text]:
    words = [f"version {facts.version:,}", count(facts.messages, "message")]
    if at is None:
        words.append(count(facts.snapshots, "snapshot"))
    if facts.expires_at is not None and at is None:
        words.append(f"expires {expiry(facts)}")
    if facts.forked_from is not None:
        words.append(f"forked from {clean(facts.forked_from)}")
    title = Text(clean(facts.session_id), style="bold").append(f"   {', '.join(words)}", "dim")
    yield title if at is None else title.append(f"   as it was at {clean(at)}", "bold yellow")
    if facts.facts:
        yield Text(clean(facts_in_words(facts)), style="dim")
    if held is not None:
        yield Text(clean(lease_in_words(held)), style="yellow")
    if limit is not None and facts.messages > limit:
        yield Text(f"... earlier entries; these are the latest {limit:,}", style="dim")
    is_empty = True
    for entry in entries:
        is_empty = False
        yield from entry_lines(entry, width)
    if is_empty:
        yield Text("(empty)", style="dim")
    if done:
        yield Text(f"{count(len(done), 'effect')}, which no rollback takes back:", style="dim")
    yield from map(line_of, done)


def snapshots(url: URL, session: SESSION, json: JSON = False) -> None:
    """List the snapshots of a session, oldest first.

    \b
    Examples:
      everturn snapshots sqlite:///memory.db customer-42
      everturn snapshots sqlite:///memory.db customer-42 --json | jq -r .id
    """
    with opened(url, for_reading=True) as store:
        session_in(store, session)
        taken = store.list_snapshots(session)
    if json:
        print_json(taken)
        return
    if not taken:
        console().print("no snapshots")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("snapshot", "label", "version", "messages", "taken"):
        table.add_column(name, justify="right" if name in {"version", "messages"} else "left", overflow="fold")
    for snapshot in taken:
        label = Text(clean(snapshot.label or ""))
        table.add_row(
            snapshot.id, label, f"{snapshot.version:,}", f"{snapshot.messages:,}", at_time(snapshot.created_at)
        )
    console().print(table)


def diff(
    url: URL,
    session: SESSION,
    a: Annotated[str, typer.Argument(metavar="A", help="A version, or a snapshot's id or label.")],
    b: Annotated[str | None, typer.Argument(metavar="B", help="Another version or snapshot; default: now.")] = None,
    json: JSON = False,
) -> None:
    """Compare two states of a session.

    Prints entries that only B shows (+) and entries that only A shows (-). Exit code 1 if they differ, as with diff(1).

    \b
    Examples:
      everturn diff sqlite:///memory.db customer-42 "before the new prompt"
      everturn diff sqlite:///memory.db customer-42 12 15
    """
    with opened(url, for_reading=True) as store:
        now = session_in(store, session).version
        points = [
            now if point is None else point for point in (point_in(store, session, a), point_in(store, session, b))
        ]
        changed = _differences(store, session, points)
        first = next(changed, None)
        if first is None:
            if not json:
                console().print("no difference")
            return
        marked = chain([first], changed)
        if json:
            print_json({"change": {"-": "removed", "+": "added"}[mark]} | as_json(entry) for mark, entry in marked)
        else:
            width = console().width
            print_paged(
                line
                for mark, entry in marked
                for line in entry_lines(entry, width, mark=mark, style="red" if mark == "-" else "green")
            )
    raise typer.Exit(1)


def _differences(
    store: MemoryStore, session_id: str, points: Sequence[Snapshot | int]
) -> Iterator[tuple[Literal["-", "+"], Entry]]:
    """Yield entries that only the second state shows (+) and those that only the first shows (-), by seq."""
    readings = [look(store, session_id, point) for point in points]
    last = max(reading.state.head for reading in readings)
    low = min(readings, key=lambda reading: reading.state.cleared)
    found: list[tuple[Literal["-", "+"], Entry]] = []

    def read(after: int, before: int) -> Sequence[Entry]:
        one, other = (
            {entry.seq: entry for entry in store.state(session_id, at=point, after=after, before=before).entries}
            for point in points
        )
        found.extend(("-", entry) for seq, entry in one.items() if seq not in other)
        found.extend(("+", entry) for seq, entry in other.items() if seq not in one)
        return [*one.values(), *other.values()]

    for _ in forward(read, low, last):
        found.sort(key=lambda line: line[1].seq or 0)
        yield from found
        found.clear()


def tail(
    url: URL,
    session: SESSION,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new entries as they come; Ctrl-C ends it.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="The number of latest entries to begin with.")
    ] = 10,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between reads.")] = 0.5,
    json: JSON = False,
) -> None:
    """Show the latest entries, and follow new ones.

    With -f, new entries are printed as any process writes them. A rollback, a trim and other changes without entries
    are printed as a line of their own.

    \b
    Examples:
      everturn tail sqlite:///memory.db customer-42 -f
      everturn tail redis://localhost customer-42 -f --json
    """
    with opened(url, for_reading=True) as store:
        facts = session_in(store, session)
        state = store.state(session)
        _print_entries(state.entries[-lines:] if lines else (), json=json)
        try:
            while follow:
                facts = _print_news(store, facts, json=json)
                time.sleep(every)
        except KeyboardInterrupt:
            pass


def _print_news(store: MemoryStore, seen: SessionInfo, *, json: bool) -> SessionInfo:
    """Print the changes since `seen`. Returns the facts to pass next time."""
    session_id = seen.session_id
    try:
        facts = store.info(session_id)
    except SessionNotFound:
        if seen.version:
            _print_event("the session expired, or was erased", json=json)
        return SessionInfo(session_id, "", 0, 0, 0, 0, 0, 0, 0.0, 0.0, None, None, None)
    known = seen.version if facts.life == seen.life else 0
    if seen.version and facts.life != seen.life:
        _print_event("the session was begun anew, after it expired or was erased", json=json)
    if facts.version == known:
        return facts
    state = store.state(session_id)
    entries = {entry.seq: entry for entry in state.entries}
    for change in reversed(store.changes(session_id, limit=state.version - known)):
        if known < change.version <= state.version:
            if change.kind in {"append", "replace"}:
                _print_entries(tuple(entries[seq] for seq in change.seqs if seq in entries), json=json)
            if change.kind != "append":
                _print_event(_in_words(change), json=json)
    return msgspec.structs.replace(facts, version=state.version, life=state.life)


def _in_words(change: Change) -> str:
    words = change_in_words(change, {change.snapshot or "": change.label})
    return f"{clean(words)} (version {change.version:,})"


def _print_entries(entries: tuple[Entry, ...], *, json: bool) -> None:
    if json:
        print_json(map(as_json, entries))
        return
    screen = console()
    for entry in entries:
        for line in entry_lines(entry, screen.width):
            screen.print(line, soft_wrap=True)
    sys.stdout.flush()


def _print_event(what: str, *, json: bool) -> None:
    if json:
        print_json([{"event": what}])
    else:
        console().print(Text(f"{'':>6} -- {what}", style="yellow"), soft_wrap=True)
        sys.stdout.flush()
