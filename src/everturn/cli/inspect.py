"""The commands that look: sessions, show, snapshots, diff, tail. (log.py draws.) None of them changes anything."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from everturn.cli.arguments import JSON, SESSION, URL, opened, point_in, session_in
from everturn.cli.entries import as_json, entry_lines
from everturn.cli.output import clean, console, print_json, print_paged
from everturn.core.numbers import count, lasting, size
from everturn.errors import SessionNotFound
from everturn.model import Change, ChatMessage, Entry, SessionInfo
from everturn.store.sync import MemoryStore
from everturn.ui.times import at_time

AT = Annotated[str | None, typer.Option("--at", metavar="POINT", help="A version, or a snapshot's id or label.")]


def sessions(
    url: URL,
    prefix: Annotated[str, typer.Argument(help="Only sessions whose id begins so.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many to list.")] = 50,
    page: Annotated[str | None, typer.Option(help="Go on where the last page ended.")] = None,
    recent: Annotated[bool, typer.Option("--recent", "-r", help="The latest changed first.")] = False,
    json: JSON = False,
) -> None:
    """List sessions, by name or the latest first.

    By id, or with --recent the latest changed first (not on Redis). The last line says how to go on where there are
    more.

    \b
    Examples:
      everturn sessions sqlite:///memory.db
      everturn sessions sqlite:///memory.db customer- --recent -n 10
      everturn sessions redis://localhost --json | jq -r .session_id
    """
    with opened(url, look=True) as store:
        found = store.sessions(prefix, limit=limit, page=page, order="recent" if recent else None)
    if json:
        print_json(found.sessions)
    elif not found.sessions:
        console().print("no sessions" + (f" beginning with {prefix!r}" if prefix else ""))
    else:
        console().print(_table(found.sessions))
    if found.next is not None:
        sys.stderr.write(f"to go on: --page {found.next}\n")


def _table(listed: tuple[SessionInfo, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", overflow="fold")
    for name in ("messages", "version", "snapshots", "size"):
        table.add_column(name, justify="right")
    table.add_column("changed")
    table.add_column("expires")
    for session in listed:
        table.add_row(
            Text(clean(session.session_id)),
            f"{session.messages:,}",
            f"{session.version:,}",
            f"{session.snapshots:,}",
            size(session.bytes),
            f"{lasting(time.time() - session.changed_at)} ago",
            _expiry(session),
        )
    return table


def _expiry(session: SessionInfo) -> str:
    return "never" if session.expires_at is None else f"in {lasting(session.expires_at - time.time())}"


def show(
    url: URL,
    session: SESSION,
    at: AT = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Only the n latest entries.")] = None,
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="Leave out what is damaged; messages only.")
    ] = False,
    json: JSON = False,
) -> None:
    """Show a conversation as it is, or as it was.

    Messages, tool calls, summaries and records, in order; now, or --at a version or a snapshot. In a terminal, what
    does not fit goes through less.

    \b
    Examples:
      everturn show sqlite:///memory.db customer-42
      everturn show sqlite:///memory.db customer-42 -n 20
      everturn show sqlite:///memory.db customer-42 --at "before the new prompt"
      everturn show sqlite:///memory.db customer-42 --json | jq -r 'select(.role=="user").content'
    """
    with opened(url, look=True) as store:
        facts = session_in(store, session)
        point = point_in(store, session, at)
        shown: Sequence[Entry]
        if skip_corrupt:
            shown = store.get_history(session, at=point, on_corrupt="skip")
        else:
            shown = store.state(session, at=point).entries
    entries = shown if limit is None else shown[-limit:]
    if json:
        print_json(map(as_json, entries))
        return
    if point is not None:
        version = point if isinstance(point, int) else point.version
        messages = sum(isinstance(entry, ChatMessage) for entry in shown)
        facts = msgspec.structs.replace(facts, version=version, messages=messages)
    print_paged(_conversation(facts, entries, len(shown), at, console().width))


def _conversation(
    facts: SessionInfo, entries: Sequence[Entry], total: int, at: str | None, width: int
) -> Iterator[Text]:
    words = [f"version {facts.version:,}", count(facts.messages, "message")]
    if at is None:
        words.append(count(facts.snapshots, "snapshot"))
    if facts.expires_at is not None and at is None:
        words.append(f"expires {_expiry(facts)}")
    if facts.forked_from is not None:
        words.append(f"forked from {clean(facts.forked_from)}")
    title = Text(clean(facts.session_id), style="bold").append(f"   {', '.join(words)}", "dim")
    yield title if at is None else title.append(f"   as it was at {clean(at)}", "bold yellow")
    if len(entries) < total:
        yield Text(f"... {count(total - len(entries), 'earlier entry', 'earlier entries')}", style="dim")
    if not entries:
        yield Text("(empty)", style="dim")
    for entry in entries:
        yield from entry_lines(entry, width)


def snapshots(url: URL, session: SESSION, json: JSON = False) -> None:
    """List a session's snapshots.

    In the order they were taken.

    \b
    Examples:
      everturn snapshots sqlite:///memory.db customer-42
      everturn snapshots sqlite:///memory.db customer-42 --json | jq -r .id
    """
    with opened(url, look=True) as store:
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
    b: Annotated[str | None, typer.Argument(metavar="B", help="The same; now, if left out.")] = None,
    json: JSON = False,
) -> None:
    """Compare two states of a session.

    What B shows that A does not (+), and the other way round (-). Exit code 1 if they differ, as with diff(1).

    \b
    Examples:
      everturn diff sqlite:///memory.db customer-42 "before the new prompt"
      everturn diff sqlite:///memory.db customer-42 12 15
    """
    with opened(url, look=True) as store:
        session_in(store, session)
        found = store.diff(session, point_in(store, session, a), point_in(store, session, b))
    marked = [("-", entry) for entry in found.removed] + [("+", entry) for entry in found.added]
    changed = sorted(marked, key=lambda line: line[1].seq or 0)
    if json:
        print_json({"change": {"-": "removed", "+": "added"}[mark]} | as_json(entry) for mark, entry in changed)
    elif not changed:
        console().print("no difference")
    else:
        width = console().width
        print_paged(
            line
            for mark, entry in changed
            for line in entry_lines(entry, width, mark=mark, style="red" if mark == "-" else "green")
        )
    raise typer.Exit(1 if changed else 0)


def tail(
    url: URL,
    session: SESSION,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added; Ctrl-C ends it.")] = False,
    lines: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many of the latest entries first.")] = 10,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between looks.")] = 0.5,
    json: JSON = False,
) -> None:
    """Show the latest entries, and follow those to come.

    With -f it goes on, whichever process writes. Changes that are no turn (a rollback, a trim, ...) show as a line of
    their own.

    \b
    Examples:
      everturn tail sqlite:///memory.db customer-42 -f
      everturn tail redis://localhost customer-42 -f --json
    """
    with opened(url, look=True) as store:
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
    """Print what has changed since `seen`."""
    session_id = seen.session_id
    try:
        facts = store.info(session_id)
    except SessionNotFound:
        if seen.version:
            _print_event("the session is gone: it expired, or was erased", json=json)
        return SessionInfo(session_id, "", 0, 0, 0, 0, 0, 0, 0.0, 0.0, None, None, None)
    known = seen.version if facts.life == seen.life else 0
    if seen.version and facts.life != seen.life:
        _print_event("a new life of the session has begun", json=json)
    if facts.version == known:
        return facts
    state = store.state(session_id)
    entries = {entry.seq: entry for entry in state.entries}
    for change in reversed(store.changes(session_id, limit=state.version - known)):
        if known < change.version <= state.version:
            if change.kind in {"append", "replace"}:
                _print_entries(tuple(entries[seq] for seq in change.seqs if seq in entries), json=json)
            if change.kind != "append":
                _print_event(told(change), json=json)
    return msgspec.structs.replace(facts, version=state.version, life=state.life)


def told(change: Change) -> str:
    """A change that is no turn, in words."""
    name = f" {clean(change.label or change.snapshot)}" if change.snapshot else ""
    return f"{change.kind}{name} (version {change.version:,})"


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
