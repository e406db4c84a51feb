"""The commands that change a session: snapshot, rollback, undo, fork, trim, clear, set-ttl, compact.

A command that removes something from the history shows it and asks. `--yes` answers for a script; without a terminal
and without `--yes` nothing is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from everturn.cli.arguments import SESSION, URL, opened, point_in, seconds_in, session_in, snapshot_in
from everturn.cli.effects import effects_of, line_of
from everturn.cli.entries import entry_lines
from everturn.cli.output import clean, console, print_json
from everturn.core.numbers import count, size
from everturn.errors import InvalidInput
from everturn.model import Entry, Receipt
from everturn.store.sync import MemoryStore
from everturn.ui.descriptions import effects_that_stay

YES = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
KEY = Annotated[str | None, typer.Option(help="An idempotency key: repeated with the same key, nothing more is done.")]
JSON = Annotated[bool, typer.Option("--json", help="Print the receipt as JSON.")]
MOST_SHOWN = 40  # entries that are printed; the rest is only counted


def snapshot(
    url: URL,
    session: SESSION,
    label: Annotated[str | None, typer.Argument(metavar="LABEL", help="A label for it.")] = None,
    key: KEY = None,
    json: JSON = False,
) -> None:
    """Save a snapshot of a session.

    A snapshot costs the same for any length of the session. It stays until it is deleted or the session ends.

    \b
    Examples:
      everturn snapshot sqlite:///memory.db customer-42 "before the new prompt"
    """
    with opened(url) as store:
        session_in(store, session)
        taken = store.save_snapshot(session, label, key=key)
        named_so = [one for one in store.list_snapshots(session) if label is not None and one.label == label]
    if json:
        print_json([taken])
    else:
        named = f" {taken.label!r}" if taken.label else ""
        console().print(f"snapshot {taken.id}{named} of {count(taken.messages, 'message')}, version {taken.version:,}")
        if len(named_so) > 1:
            sys.stderr.write(f"everturn: {len(named_so)} snapshots have this label; name one of them by its id\n")


def rollback(
    url: URL,
    session: SESSION,
    snapshot: Annotated[
        str | None,
        typer.Argument(metavar="SNAPSHOT", help="A snapshot's label, its id, or the beginning of its id."),
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="POINT", help="A version, or a snapshot's id or label.")] = None,
    yes: YES = False,
    key: KEY = None,
    json: JSON = False,
) -> None:
    """Roll a session back to a snapshot, or to a version.

    Shows the entries that will leave the history and those that come back, and effects that stay done, then asks.
    Nothing is deleted: undo restores the entries. If the session changes before you answer, nothing is done and an
    error is printed.

    \b
    Examples:
      everturn rollback sqlite:///memory.db customer-42 "before the new prompt"
      everturn rollback sqlite:///memory.db customer-42 5dccf008 --yes
      everturn rollback sqlite:///memory.db customer-42 --to 12
    """
    if snapshot is None and to is None:
        raise InvalidInput("give a SNAPSHOT, or --to with a version", path="--to")
    if snapshot is not None and to is not None:
        raise InvalidInput("give a SNAPSHOT or --to, not both", path="--to")
    with opened(url) as store:
        session_in(store, session)
        target = point_in(store, session, to) if snapshot is None else snapshot_in(store, session, snapshot, "--to")
        if target is None:
            raise InvalidInput("is a version or a snapshot; the session is at 'now' already", path="--to")
        now = store.state(session)
        if not yes:
            with _naming_option("--to"):
                changed = store.diff(session, now.version, target)
            _show_leaving(changed.removed, changed.added)
            _show_staying(store, session, target if isinstance(target, int) else target.version)
            named = f"version {target}" if isinstance(target, int) else repr(clean(target.label or target.id))
            ask(f"roll {session!r} back to {named}?")
        with _naming_option("--to"):
            receipt = store.rollback(session, target, key=key, expected_version=None if yes else now)
    _done_unless_same(receipt, now.version, "rolled back", json=json)


def _show_staying(store: MemoryStore, session_id: str, version: int) -> None:
    """Print the effects that a rollback to a version leaves done."""
    staying = effects_that_stay(effects_of(store, session_id), version)
    if staying:
        console().print(f"{count(len(staying), 'effect')} that no rollback takes back:")
    for effect in staying[:MOST_SHOWN]:
        console().print(line_of(effect))


@contextmanager
def _naming_option(option: str) -> Iterator[None]:
    """Raise an InvalidInput about a version or snapshot as one about the option that named it, for a block."""
    try:
        yield
    except InvalidInput as error:
        if error.path not in {"at", "to"}:
            raise
        raise InvalidInput(str(error).removeprefix(f"{error.path}: "), path=option) from error


def undo(url: URL, session: SESSION, yes: YES = False, key: KEY = None, json: JSON = False) -> None:
    """Undo the latest rollback, replace, trim, fold or clear.

    If turns were appended after a rollback or replace, undoing it removes them from the history: they are shown, and
    you are asked first.

    \b
    Examples:
      everturn undo sqlite:///memory.db customer-42
    """
    from everturn.errors import VersionConflict

    with opened(url) as store:
        session_in(store, session)
        now = store.state(session)
        try:
            receipt = store.undo(session, key=key)
        except VersionConflict:
            if not yes:
                _show_leaving(_since_rollback(store, session), ())
                ask("undo anyway, and remove these turns from the history?")
            receipt = store.undo(session, key=key, expected_version=now)
    _done(receipt, "undone", json=json)


def _since_rollback(store: MemoryStore, session_id: str) -> tuple[Entry, ...]:
    """The entries of the turns that followed the latest rollback or replace."""
    seqs: set[int] = set()
    for change in store.changes(session_id, limit=1024):
        if change.kind in {"rollback", "replace"}:
            break
        seqs.update(change.seqs)
    return tuple(entry for entry in store.state(session_id).entries if entry.seq in seqs)


def fork(
    url: URL,
    session: SESSION,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The id of the new session; it must not exist.")],
    at: Annotated[str | None, typer.Option(metavar="POINT", help="A version, or a snapshot's id or label.")] = None,
    key: KEY = None,
    json: JSON = False,
) -> None:
    """Copy a session's state into a new session.

    Copies the present state, or with --at the state at a version or snapshot. Snapshots and keys are not copied.

    \b
    Examples:
      everturn fork sqlite:///memory.db customer-42 customer-42-replay
      everturn fork sqlite:///memory.db customer-42 experiment --at "before the new prompt"
    """
    with opened(url) as store:
        session_in(store, session)
        receipt = store.fork(session, new, at=point_in(store, session, at), key=key)
    _done(receipt, f"forked into {new!r}", json=json)


def trim(
    url: URL,
    session: SESSION,
    max_messages: Annotated[int, typer.Argument(metavar="N", min=0, help="The number of messages to keep at most.")],
    all_roles: Annotated[bool, typer.Option("--no-keep-system", help="Trim system messages, too.")] = False,
    yes: YES = False,
    key: KEY = None,
    json: JSON = False,
) -> None:
    """Shorten a session to its latest messages.

    Keeps whole turns, always the last turn, system messages, and tool results with their calls. Asks first; undo
    restores the messages.

    \b
    Examples:
      everturn trim sqlite:///memory.db customer-42 50
    """
    with opened(url) as store:
        facts = session_in(store, session)
        if not yes:
            ask(f"trim {session!r} from {count(facts.messages, 'message')} to at most {max_messages:,}?")
        receipt = store.trim(session, max_messages=max_messages, keep_system=not all_roles, key=key)
        left = store.info(session).messages
    _done_unless_same(receipt, facts.version, f"trimmed to {count(left, 'message')}", json=json)


def clear(url: URL, session: SESSION, yes: YES = False, key: KEY = None, json: JSON = False) -> None:
    """Empty a session's history.

    The entries stay stored, and undo brings them back. To delete them, use erase. Asks first.

    \b
    Examples:
      everturn clear sqlite:///memory.db customer-42
    """
    with opened(url) as store:
        facts = session_in(store, session)
        if not yes:
            ask(f"clear {session!r} of {count(facts.messages, 'message')}?")
        receipt = store.clear(session, key=key)
    _done_unless_same(receipt, facts.version, "cleared", json=json)


def set_ttl(
    url: URL,
    session: SESSION,
    ttl: Annotated[str, typer.Argument(metavar="TTL", help="Seconds, or 30min, 12h, 7d; 'never' for no expiry.")],
    key: KEY = None,
    json: JSON = False,
) -> None:
    """Set how long after its latest change a session expires.

    Every change starts the time again; reads do not.

    \b
    Examples:
      everturn set-ttl sqlite:///memory.db customer-42 30d
      everturn set-ttl sqlite:///memory.db customer-42 never
    """
    seconds = None if ttl == "never" else seconds_in(ttl, "ttl", ", or never")
    with opened(url) as store:
        session_in(store, session)
        receipt = store.set_ttl(session, seconds, key=key)
    _done(receipt, "never expires" if seconds is None else f"expires {ttl} after its latest change", json=json)


def compact(
    url: URL,
    session: Annotated[str | None, typer.Argument(metavar="SESSION", help="Only this session; default: all.")] = None,
    json: JSON = False,
) -> None:
    """Delete entries that nothing can show any more.

    Deletes entries that neither the history nor a snapshot nor undo can show, and the rest of expired sessions.

    \b
    Examples:
      everturn compact sqlite:///memory.db
      everturn compact sqlite:///memory.db customer-42
    """
    with opened(url) as store:
        if session is not None:
            session_in(store, session)
        done = store.compact(session)
    if json:
        print_json([done])
    else:
        words = f"{count(done.entries, 'entry', 'entries')} of {count(done.sessions, 'session')}, {size(done.bytes)}"
        console().print(f"reclaimed {words}")


# --- questions and results -------------------------------------------------------------------------------------------


def _show_leaving(leaving: tuple[Entry, ...], returning: tuple[Entry, ...]) -> None:
    screen = console()
    for title, entries, mark in (("will leave the history", leaving, "-"), ("will come back", returning, "+")):
        if not entries:
            continue
        screen.print(f"{title}: {count(len(entries), 'entry', 'entries')}")
        if len(entries) > MOST_SHOWN:
            screen.print(f"  ... and {len(entries) - MOST_SHOWN:,} before these")
        for entry in entries[-MOST_SHOWN:]:
            for line in entry_lines(entry, screen.width, mark=mark, style="red" if mark == "-" else "green"):
                screen.print(line, soft_wrap=True)
    if not leaving and not returning:
        screen.print("the history stays as it is")


def ask(question: str) -> None:
    """Ask a person. Exits with 2 if the answer is no."""
    need_terminal("--yes")
    if not typer.confirm(question):
        sys.stderr.write("everturn: nothing was changed\n")
        raise typer.Exit(2)


def need_terminal(option: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput(f"there is no terminal to ask on; give {option}", path="stdin")


def _done_unless_same(receipt: Receipt, before: int, what: str, *, json: bool) -> None:
    """Print a change that undo can take back; or that there was nothing to do, since undo would take back another."""
    if receipt.version == before and not receipt.replayed:
        _done(receipt, "nothing to do", json=json)
    else:
        _done(receipt, what, json=json, hint="undo takes it back")


def _done(receipt: Receipt, what: str, *, json: bool, hint: str = "") -> None:
    if json:
        print_json([receipt])
        return
    again = " (done before, with the same key)" if receipt.replayed else ""
    tip = f"; {hint}" if hint else ""
    console().print(f"{what}: {receipt.session_id!r} is at version {receipt.version:,}{again}{tip}")
