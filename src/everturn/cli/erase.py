"""Commands that erase: one session, all of a user, or those that have not changed for long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from everturn.cli.arguments import URL, WHERE, facts_in, opened, seconds_in, session_in
from everturn.cli.change import JSON, need_terminal
from everturn.cli.output import clean, console, print_json
from everturn.core.numbers import count, lasting, size
from everturn.errors import InvalidInput
from everturn.model import ErasureReceipt, SessionInfo
from everturn.store.erase_many import with_sessions_beside
from everturn.store.sync import MemoryStore
from everturn.ui.descriptions import contents, erased, not_erased

PAGE = 1000
PREFIX = Annotated[str, typer.Option("--prefix", metavar="PREFIX", help="Only sessions whose id begins with this.")]


def erase(
    url: URL,
    session: Annotated[str | None, typer.Argument(metavar="SESSION", help="The session's id.")] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="PREFIX", help="Erase all sessions whose id begins with this.")
    ] = None,
    where: WHERE = None,
    confirm: Annotated[
        str | None, typer.Option(metavar="NAME", help="The id, prefix or fact again, instead of typing it when asked.")
    ] = None,
    json: JSON = False,
) -> None:
    """Delete a session for good, or all of a user, with a receipt.

    Deletes entries and snapshots from the storage; this cannot be undone. You are asked to type the session's id,
    the prefix or the facts. With a prefix that ends in /, sessions that adapters keep beside it go too. If it is
    interrupted, repeat it. Exit code 1 if a reader or a replica can still see something; the receipt says so.

    \b
    Examples:
      everturn erase sqlite:///memory.db customer-42
      everturn erase sqlite:///memory.db customer-42 --confirm customer-42 --json
      everturn erase postgresql://host/db --prefix customer-42/
      everturn erase postgresql://host/db --where user=customer-42
    """
    if (session is None) == (not prefix and not where) or prefix == "":
        text = "give a session, or --prefix with at least one character, or --where"
        raise InvalidInput(text, path="SESSION")
    facts = facts_in(where)
    name = session or " ".join([*([prefix] if prefix else []), *(where or ())])
    with opened(url) as store:
        many = _sessions(store, prefix or "", facts)
        what = contents(session_in(store, name)) if session is not None else _contents_of(many)
        if confirm is None:
            need_terminal("--confirm " + ("SESSION" if session is not None else repr(name) if where else "PREFIX"))
            console().print(f"this deletes {name!r} for good: {what}")
            confirm = typer.prompt("type it again to delete it", default="", show_default=False)
        if confirm != name:
            raise InvalidInput(f"is {confirm!r}, not {name!r}; nothing was erased", path="confirm")
        if session is not None:
            receipt = store.erase(session)
        else:
            receipt = store.erase_all(prefix=prefix or "", where=facts or None, progress=_progress())
    _print(receipt, f"erased {clean(name)!r}", json=json)


def retain(
    url: URL,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Time since the latest change: 90d, 12h, 30min.")
    ],
    prefix: PREFIX = "",
    where: WHERE = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the sessions, and erase nothing.")] = False,
    json: JSON = False,
) -> None:
    """Erase sessions that have not changed for a time.

    Goes session by session, in small steps, and tells its progress. A session that is changed meanwhile stays. If it is
    interrupted, repeat it: it goes on with the rest. For a cron job. Exit code 1 if a reader or a replica can still see
    something.

    \b
    Examples:
      everturn retain sqlite:///memory.db --older-than 90d --dry-run
      everturn retain postgresql://host/db --older-than 90d --prefix trial-
      everturn retain postgresql://host/db --older-than 30d --where plan=free
    """
    age = seconds_in(older_than, "--older-than")
    before, facts = time.time() - age, facts_in(where)
    with opened(url, for_reading=dry_run) as store:
        if dry_run:
            _list((found for found in _sessions(store, prefix, facts) if found.changed_at < before), json=json)
            return
        receipt = store.erase_all(prefix=prefix, where=facts or None, changed_before=before, progress=_progress())
    _print(receipt, f"erased {count(receipt.sessions, 'session')} unchanged for {older_than}", json=json)


def _sessions(store: MemoryStore, prefix: str, facts: dict[str, str]) -> Iterator[SessionInfo]:
    for each in with_sessions_beside(prefix):
        page: str | None = None
        while True:
            found = store.sessions(each, where=facts, limit=PAGE, page=page)
            yield from found.sessions
            if (page := found.next) is None:
                break


def _contents_of(listed: Iterator[SessionInfo]) -> str:
    sessions = messages = total = 0
    for found in listed:
        sessions, messages, total = sessions + 1, messages + found.messages, total + found.bytes
    return f"{count(sessions, 'session')}, {count(messages, 'message')}, {size(total)}"


def _list(found: Iterator[SessionInfo], *, json: bool) -> None:
    if json:
        print_json(found)
        return
    number = 0
    for session in found:
        number += 1
        age = lasting(time.time() - session.changed_at)
        sys.stdout.write(f"{clean(session.session_id)}  {count(session.messages, 'message')}, changed {age} ago\n")
    sys.stdout.write(f"{count(number, 'session')} would be erased\n")


def _progress() -> Callable[[ErasureReceipt], None] | None:
    """Tell the number of erased sessions on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        return None

    def tell(so_far: ErasureReceipt) -> None:
        sys.stderr.write(f"\r{count(so_far.sessions, 'session')} erased, {size(so_far.bytes)} ")
        sys.stderr.flush()

    return tell


def _print(receipt: ErasureReceipt, what: str, *, json: bool) -> None:
    if json:
        print_json([receipt])
    else:
        console().print(f"{what}: {erased(receipt)}")
        for sentence in not_erased(receipt):
            console().print(sentence)
    raise typer.Exit(0 if receipt.complete else 1)
