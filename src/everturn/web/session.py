"""One session: the conversation, a window at a time, beside its timeline."""

from __future__ import annotations

import time

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from everturn.core.numbers import count, lasting, size
from everturn.errors import InvalidInput, SnapshotNotFound
from everturn.model import Change, ChatMessage, Entry, SessionInfo, Snapshot, Summary, ToolCall
from everturn.store.aio import AsyncMemoryStore
from everturn.ui import change_graph
from everturn.ui.change_graph import Moment
from everturn.ui.html import Html, Node, shown, tag
from everturn.web.actions import buttons, snapshot_list, toast
from everturn.web.entries import entries, plain
from everturn.web.links import link, number_in, url
from everturn.web.page import Inspector, ago, fragment, inspector_of, page, stamp
from everturn.web.timeline_svg import drawn

WINDOW = 100  # messages at a time
CHANGES = 150  # of the timeline
MOST_BRANCHES = 10  # of which the words are looked up
NEAR = 256  # seqs looked back for what a turn followed


class View(msgspec.Struct, frozen=True):
    """A window on one state of a session."""

    facts: SessionInfo
    at: int | str | None
    entries: tuple[Entry, ...]
    earlier: int | None  # the seq that an earlier window ends before; None at the beginning


async def view(store: AsyncMemoryStore, session_id: str, at: int | str | None, before: int | None = None) -> View:
    """The latest window, or the one that ends before a seq. It costs the same at any length."""
    facts = await store.info(session_id)
    messages = await store.get_history(session_id, at=at, before=before, limit=WINDOW)
    first = messages[0].seq if messages else None
    if len(messages) < WINDOW:
        first = None  # the beginning is in sight: show what stands before the first message, too
    state = await store.state(session_id, at=at, before=before, after=None if first is None else first - 1)
    return View(facts, at, state.entries, first)


def asked_for(request: Request) -> tuple[str, int | str | None]:
    """The session, and the point in its time: a version, a snapshot's id, or None for now."""
    session_id = request.query_params.get("id", "")
    at = request.query_params.get("at")
    return session_id, number_in(at, "at") if at is not None and at.isdecimal() else at


async def session(request: Request) -> Response:
    inspector = inspector_of(request)
    session_id, at = asked_for(request)
    seen = await view(inspector.store, session_id, at)
    body = await _body(inspector, seen, request)
    if "fragment" in request.query_params:
        return fragment(*body)
    return page(
        inspector,
        session_id,
        tag("h1", shown(session_id)),
        toast(inspector, seen.facts, request.query_params.get("done")),
        tag(
            "div",
            *body,
            id="live",
            class_="split",
            data_live=url("/live", id=session_id, seen=stamp([seen.facts])) if at is None else None,
            data_part=url("/session", id=session_id, fragment=1),
        ),
    )


async def _body(inspector: Inspector, seen: View, request: Request) -> list[Node]:
    facts = seen.facts
    changes = min(max(number_in(request.query_params.get("changes") or str(CHANGES), "changes"), 1), 2000)
    told, words, snapshots = await _told(inspector.store, facts, seen.entries, changes)
    at = seen.at if isinstance(seen.at, int) else next((one.version for one in snapshots if one.id == seen.at), None)
    then = None if seen.at is None else _then(facts, seen.at, snapshots)
    older = None
    if told and told[0].version > 1:
        older = tag("p", link("/session", "older changes", id=facts.session_id, at=seen.at, changes=4 * changes))
    return [
        tag(
            "section",
            _facts(facts),
            then,
            buttons(inspector, facts) if seen.at is None else None,
            tag("div", *window(seen), id="conversation", class_="conversation", role="log", aria_label="Conversation"),
            aria_label="The conversation",
        ),
        tag(
            "aside",
            tag("h2", "Timeline"),
            _compare(facts, told),
            tag("div", drawn(told, facts.session_id, words, at), class_="scroll"),
            older,
            snapshot_list(inspector, facts, snapshots),
            aria_label="Timeline",
        ),
    ]


def _facts(facts: SessionInfo) -> Html:
    told: list[Node] = [
        f"version {facts.version:,}",
        count(facts.messages, "message"),
        count(facts.snapshots, "snapshot"),
        size(facts.bytes),
        ["changed ", ago(facts.changed_at)],
    ]
    if facts.expires_at is not None:
        told.append(f"expires in {lasting(facts.expires_at - time.time())}")
    if facts.forked_from is not None:
        told.append(["forked from ", link("/session", shown(facts.forked_from), id=facts.forked_from)])
    return tag("ul", [tag("li", one) for one in told], class_="facts")


def _then(facts: SessionInfo, at: int | str, snapshots: list[Snapshot]) -> Html:
    """Says that this is the past, and leads back."""
    name = next((one.label or one.id for one in snapshots if one.id == at), f"version {at}")
    return tag(
        "p",
        "As it was at ",
        tag("strong", shown(str(name))),
        ". ",
        link("/session", "Back to now", id=facts.session_id),
        " · ",
        link("/compare", "compare with now", id=facts.session_id, a=at),
        class_="then",
        role="status",
    )


def window(seen: View) -> list[Node]:
    """The entries, under the marker that brings the earlier ones when it comes into sight."""
    session_id = seen.facts.session_id
    earlier: Node = None
    if seen.earlier is not None:
        more = url("/session/entries", id=session_id, at=seen.at, before=seen.earlier)
        earlier = tag("a", "earlier", href=more, class_="earlier", data_more=more)
    if not seen.entries:
        return [tag("p", "Nothing is in the history.", class_="facts")]
    return [earlier, *entries(seen.entries, session_id)]


async def earlier_entries(request: Request) -> Response:
    """The window before a seq, for the script."""
    session_id, at = asked_for(request)
    before = number_in(request.query_params.get("before", ""), "before")
    return fragment(*window(await view(inspector_of(request).store, session_id, at, before)))


async def raw(request: Request) -> Response:
    """One entry as plain text, whole."""
    session_id, at = asked_for(request)
    seq = max(1, number_in(request.query_params.get("seq", ""), "seq"))
    state = await inspector_of(request).store.state(session_id, at=at, after=seq - 1, before=seq + 1)
    if not state.entries:
        raise InvalidInput(f"session {session_id!r} does not show an entry {seq} here", path="seq")
    return PlainTextResponse("\n".join(map(plain, state.entries)))


# --- the timeline ----------------------------------------------------------------------------------------------------


async def _told(
    store: AsyncMemoryStore, facts: SessionInfo, shown_entries: tuple[Entry, ...], limit: int
) -> tuple[list[Moment], dict[int, str], list[Snapshot]]:
    """The latest changes, what each was in words, and the snapshots."""
    changes = await store.changes(facts.session_id, limit=limit)
    snapshots = await store.list_snapshots(facts.session_id)
    taken = {one.id: one.version for one in snapshots}
    taken |= {one.snapshot: one.version for one in changes if one.kind == "snapshot" and one.snapshot}
    after = {one.version: await _after(store, facts, one) for one in changes if one.kind == "replace"}
    told = change_graph.moments(changes, taken, lambda change: after.get(change.version))
    known = {entry.seq or 0: entry for entry in shown_entries}
    known |= await _branches(store, facts, told)
    labels = {one.id: one.label or one.id for one in snapshots}
    return told, {moment.version: _words(moment.change, known, labels) for moment in told}, snapshots


async def _after(store: AsyncMemoryStore, facts: SessionInfo, change: Change) -> int | None:
    """The seq that a replace put its entries after."""
    first = change.seqs[0] if change.seqs else facts.last_seq + 1
    try:
        near = await store.state(facts.session_id, at=change.version, before=first, after=max(first - NEAR, 0))
        if near.entries:
            return near.entries[-1].seq
        far = await store.get_history(facts.session_id, at=change.version, before=first, limit=1)
    except InvalidInput:
        return None  # reclaimed
    return far[-1].seq if far else 0


async def _branches(store: AsyncMemoryStore, facts: SessionInfo, told: list[Moment]) -> dict[int, Entry]:
    """The entries of the latest branches that the head has left."""
    path = change_graph.on_path(told)
    turns = {moment.version: moment for moment in told if moment.is_turn}
    known: dict[int, Entry] = {}
    left = [tip for tip in change_graph.tips(told) if tip not in path]
    for tip in sorted(left, reverse=True)[:MOST_BRANCHES]:
        first, turn = turns[tip].change.seqs[:1], turns.get(tip)
        while turn is not None and turn.version not in path:
            first, turn = turn.change.seqs[:1] or first, turns.get(turn.parent or 0)
        try:
            state = await store.state(facts.session_id, at=tip, after=first[0] - 1 if first else None)
        except (InvalidInput, SnapshotNotFound):
            continue  # reclaimed
        known.update((entry.seq or 0, entry) for entry in state.entries)
    return known


def _words(change: Change, known: dict[int, Entry], labels: dict[str, str]) -> str:
    if change.kind in change_graph.TURNS:
        seen = [known[seq] for seq in change.seqs if seq in known]
        kind = "" if change.kind == "append" else f"{change.kind}: "
        if not seen:
            return f"{kind}{count(len(change.seqs), 'entry', 'entries')}"
        return kind + " ".join(_said(seen[0])[:200].split())
    name = change.label or labels.get(change.snapshot or "", change.snapshot or "")
    return f"{change.kind} {name}".strip()


def _said(entry: Entry) -> str:
    if isinstance(entry, ChatMessage):
        return f"{entry.role}: {entry.text}"
    if isinstance(entry, ToolCall):
        return f"call of {entry.name}"
    return f"summary: {entry.text}" if isinstance(entry, Summary) else entry.kind


def _compare(facts: SessionInfo, told: list[Moment]) -> Node:
    """Choose two points to compare."""
    if len(told) < 2:
        return None
    versions = [moment.version for moment in reversed(told)]

    def choice(name: str, chosen: int) -> Html:
        options = [tag("option", str(one), value=one, selected=one == chosen) for one in versions]
        return tag("select", options, name=name)

    return tag(
        "form",
        tag("input", type="hidden", name="id", value=facts.session_id),
        tag("label", "Compare version ", choice("a", versions[1])),
        tag("label", " with ", choice("b", versions[0])),
        " ",
        tag("button", "Compare", type="submit"),
        method="get",
        action=url("/compare"),
        class_="bar",
    )
