"""The command `effects`: lists the effects of a session or of all, and resolves one that is in doubt."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from everturn.cli.arguments import JSON, opened, session_in
from everturn.cli.output import clean, console, print_json
from everturn.errors import InvalidInput, Unsupported
from everturn.model import Effect
from everturn.model.held_lease import HeldLease
from everturn.store.sync import MemoryStore
from everturn.ui.descriptions import effect_in_words

PAGE = 100  # sessions that are asked for at once
COLORS = {"started": "bold yellow", "finished": "green", "failed": "red"}


def effects(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[resolve] URL [SESSION] [KEY]", help="The store, the session, the effect to resolve."),
    ],
    in_doubt: Annotated[bool, typer.Option("--in-doubt", help="Only effects that were begun and never ended.")] = False,
    prefix: Annotated[str, typer.Option(help="Without SESSION: only sessions whose id begins with this.")] = "",
    finished: Annotated[bool, typer.Option("--finished", help="resolve: It was done.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="resolve: It was not done, and may begin again.")] = False,
    reason: Annotated[str | None, typer.Option(help="resolve: How you know. It is kept with the effect.")] = None,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="resolve --finished: Its result.")] = None,
    json: JSON = False,
) -> None:
    """List what was done in the world for a session, or for all; say what became of it.

    An effect that is in doubt was begun and never ended: a worker crashed, or is still at work. Find out whether it
    was done, and resolve it: workers that ask for it then get the result, or begin it again.

    \b
    Examples:
      everturn effects sqlite:///memory.db --in-doubt
      everturn effects sqlite:///memory.db customer-42
      everturn effects sqlite:///memory.db customer-42 --in-doubt
      everturn effects resolve sqlite:///memory.db customer-42 refund-1234 --finished --reason "the bank has it"
      everturn effects resolve sqlite:///memory.db customer-42 mail-7 --failed --reason "not in the mail log"
    """
    if words[0] == "resolve":
        if len(words) != 4:
            raise InvalidInput("takes a URL, a session and the key of an effect", path="resolve")
        if finished == failed or not reason:
            raise InvalidInput("needs --finished or --failed, and --reason", path="resolve")
        _resolve(*words[1:], finished=finished, reason=reason, result=result)
        return
    if len(words) not in (1, 2):
        raise InvalidInput("takes a URL, or a URL and a session", path="effects")
    with opened(words[0], for_reading=True) as store:
        if len(words) == 2:
            session_in(store, words[1])
        told = 0
        for session in words[1:] or _all_sessions(store, prefix):
            for effect in store.get_effects(session):
                if in_doubt and effect.status != "started":
                    continue
                told += 1
                if json:
                    print_json([{"session_id": session, **msgspec.to_builtins(effect)}])
                else:
                    place = Text(f"{clean(session)}  ") if len(words) == 1 else Text()
                    console().print(place.append_text(line_of(effect)), soft_wrap=True)
    if not told and not json:
        console().print("no effect is in doubt" if in_doubt else "no effects", style="dim")


def _all_sessions(store: MemoryStore, prefix: str) -> Iterator[str]:
    """Yield the ids of all sessions. The command prints each finding at once, because each session takes a request."""
    page = None
    while True:
        found = store.sessions(prefix, limit=PAGE, page=page)
        for session in found.sessions:
            yield session.session_id
        page = found.next
        if page is None:
            return


def line_of(effect: Effect) -> Text:
    """A line that tells of an effect: its key, its status, who began it and when, and its result or error."""
    line = Text(clean(effect.key), style="bold")
    return line.append("  ").append(clean(effect_in_words(effect)), COLORS.get(effect.status, ""))


def effects_of(store: MemoryStore, session_id: str) -> list[Effect]:
    """List the effects of a session; none where the backend keeps none."""
    try:
        return store.get_effects(session_id)
    except Unsupported:
        return []


def lease_of(store: MemoryStore, session_id: str) -> HeldLease | None:
    """Look who holds the lease of a session; None where the backend does not tell."""
    try:
        return store.get_lease(session_id)
    except Unsupported:
        return None


def _resolve(url: str, session: str, key: str, *, finished: bool, reason: str, result: str | None) -> None:
    if result is not None and not finished:
        raise InvalidInput("belongs to --finished", path="--result")
    try:
        value = None if result is None else json_text.loads(result)
    except ValueError as exc:
        raise InvalidInput(f"is no JSON ({exc})", path="--result") from exc
    with opened(url) as store:
        session_in(store, session)
        if finished:
            receipt = store.finish_effect(session, key, value, note=reason)
        else:
            receipt = store.fail_effect(session, key, reason, note=reason)
    state = "finished" if finished else "failed; it may begin again"
    console().print(f"effect {clean(key)!r} is {state}: {session!r} is at version {receipt.version:,}")
