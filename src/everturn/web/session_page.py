"""One session: a window of its conversation, beside its timeline."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from everturn.core.numbers import count, size
from everturn.errors import InvalidInput, SnapshotNotFound
from everturn.model import Change, ChatMessage, Entry, SessionInfo, Snapshot, Summary, ToolCall
from everturn.model.held_lease import HeldLease
from everturn.store.aio import AsyncMemoryStore
from everturn.ui import change_graph
from everturn.ui.change_graph import Moment
from everturn.ui.descriptions import change_in_words, expiry, lease_in_words
from everturn.ui.html import Html, Node, shown, tag
from everturn.web.actions import buttons, buttons_of_the_past, snapshot_list, toast
from everturn.web.effects import effect_list, effects_of, lease_of
from everturn.web.entries import entries, plain
from everturn.web.links import link, number_in, point_in, url
from everturn.web.page import InspectorContext, ago, fragment, inspector_of, page, stamp
from everturn.web.timeline_svg import drawn

WINDOW = 100  # messages on a page
CHANGES = 150  # of the timeline
MOST_BRANCHES = 10  # whose entries are read for the timeline
NEAR = 256  # seqs before a turn in which its predecessor is searched first


class SessionWindow(msgspec.Struct, frozen=True):
    """A window on one state of a session."""

    facts: SessionInfo
    at: int | str | None
    entries: tuple[Entry, ...]
    earlier: int | None  # the seq that an earlier window ends before; None at the beginning


async def view(
    store: AsyncMemoryStore, session_id: str, at: int | str | None, before: int | None = None
) -> SessionWindow:
    """The latest window, or the one that ends before a seq. The cost does not depend on the length of the session."""
    facts = await store.info(session_id)
    messages = await store.get_history(session_id, at=at, before=before, limit=WINDOW)
    first = messages[0].seq if messages else None
    if len(messages) < WINDOW:
        first = None  # the window has the beginning: show entries before the first message, too
    state = await store.state(session_id, at=at, before=before, after=None if first is None else first - 1)
    return SessionWindow(facts, at, state.entries, first)


def asked_for(request: Request) -> tuple[str, int | str | None]:
    """The session of a request, and the version or snapshot id that it asks for; None for the present."""
    session_id = request.query_params.get("id", "")
    at = request.query_params.get("at")
    return session_id, None if at is None else point_in(at)


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


async def _body(inspector: InspectorContext, seen: SessionWindow, request: Request) -> list[Node]:
    facts = seen.facts
    changes = min(max(number_in(request.query_params.get("changes") or str(CHANGES), "changes"), 1), 2000)
    moments, words, snapshots = await _timeline(inspector.store, facts, seen.entries, changes)
    at = seen.at if isinstance(seen.at, int) else next((one.version for one in snapshots if one.id == seen.at), None)
    then = None if seen.at is None else _then(facts, seen.at, snapshots)
    older = None
    if moments and moments[0].version > 1:
        older = tag("p", link("/session", "older changes", id=facts.session_id, at=seen.at, changes=4 * changes))
    return [
        tag(
            "section",
            _facts(facts, await lease_of(inspector.store, facts.session_id)),
            then,
            buttons(inspector, facts) if seen.at is None else buttons_of_the_past(inspector, facts, seen.at),
            tag("div", *window(seen), id="conversation", class_="conversation", role="log", aria_label="Conversation"),
            aria_label="The conversation",
        ),
        tag(
            "aside",
            tag("h2", "Timeline"),
            _compare(facts, moments),
            tag("div", drawn(moments, facts.session_id, words, at), class_="scroll"),
            older,
            snapshot_list(inspector, facts, snapshots),
            effect_list("Effects", await effects_of(inspector.store, facts.session_id)),
            aria_label="Timeline",
        ),
    ]


def _facts(facts: SessionInfo, held: HeldLease | None) -> Html:
    items: list[Node] = [
        f"version {facts.version:,}",
        count(facts.messages, "message"),
        count(facts.snapshots, "snapshot"),
        size(facts.bytes),
        ["changed ", ago(facts.changed_at)],
    ]
    items += [shown(f"{name}: {value}") for name, value in facts.facts.items()]
    if facts.expires_at is not None:
        items.append(f"expires {expiry(facts)}")
    if held is not None:
        items.append(shown(lease_in_words(held)))
    if facts.forked_from is not None:
        items.append(["forked from ", link("/session", shown(facts.forked_from), id=facts.forked_from)])
    return tag("ul", [tag("li", one) for one in items], class_="facts")


def _then(facts: SessionInfo, at: int | str, snapshots: list[Snapshot]) -> Html:
    """A line that says which earlier state this is, with a link back."""
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


def window(seen: SessionWindow) -> list[Node]:
    """The entries, below a link to earlier ones, which the script follows when it is scrolled to."""
    session_id = seen.facts.session_id
    earlier: Node = None
    if seen.earlier is not None:
        more = url("/session/entries", id=session_id, at=seen.at, before=seen.earlier)
        earlier = tag("a", "earlier", href=more, class_="earlier", data_more=more)
    if not seen.entries:
        return [tag("p", "The history is empty.", class_="facts")]
    return [earlier, *entries(seen.entries, session_id)]


async def earlier_entries(request: Request) -> Response:
    """The window before a seq, for the script in the browser."""
    session_id, at = asked_for(request)
    before = number_in(request.query_params.get("before", ""), "before")
    return fragment(*window(await view(inspector_of(request).store, session_id, at, before)))


async def raw(request: Request) -> Response:
    """One entry as plain text, whole."""
    session_id, at = asked_for(request)
    seq = max(1, number_in(request.query_params.get("seq", ""), "seq"))
    state = await inspector_of(request).store.state(session_id, at=at, after=seq - 1, before=seq + 1)
    if not state.entries:
        raise InvalidInput(f"session {session_id!r} has no entry {seq} in this state", path="seq")
    return PlainTextResponse("\n".join(map(plain, state.entries)))


# --- the timeline ----------------------------------------------------------------------------------------------------


async def _timeline(
    store: AsyncMemoryStore, facts: SessionInfo, shown_entries: tuple[Entry, ...], limit: int
) -> tuple[list[Moment], dict[int, str], list[Snapshot]]:
    """The latest changes, each in words, and the snapshots."""
    changes = await store.changes(facts.session_id, limit=limit)
    snapshots = await store.list_snapshots(facts.session_id)
    taken = change_graph.taken_at(changes, snapshots)
    after: dict[int, int | None] = {}
    # What was written before each replace: place_changes knows, and asks in order.
    asked: list[tuple[Change, int | None]] = []
    change_graph.place_changes(changes, taken, lambda change, latest: asked.append((change, latest)))
    for change, latest in asked:
        after[change.version] = await _after(store, facts, change, latest)
    moments = change_graph.place_changes(changes, taken, lambda change, _latest: after.get(change.version))
    known = {entry.seq or 0: entry for entry in shown_entries}
    known |= await _branches(store, facts, moments)
    labels = {one.id: one.label for one in snapshots}
    return moments, {moment.version: _words(moment.change, known, labels) for moment in moments}, snapshots


async def _after(store: AsyncMemoryStore, facts: SessionInfo, change: Change, latest: int | None) -> int | None:
    """The seq that a replace put its entries after."""
    first = latest + 1 if latest is not None else change.seqs[0] if change.seqs else facts.last_seq + 1
    try:
        near = await store.state(facts.session_id, at=change.version, before=first, after=max(first - NEAR, 0))
        if near.entries:
            return near.entries[-1].seq
        far = await store.get_history(facts.session_id, at=change.version, before=first, limit=1)
    except InvalidInput:
        return None  # reclaimed
    return far[-1].seq if far else 0


async def _branches(store: AsyncMemoryStore, facts: SessionInfo, moments: list[Moment]) -> dict[int, Entry]:
    """The entries of the latest branches that the head has left."""
    path = change_graph.on_path(moments)
    turns = {moment.version: moment for moment in moments if moment.is_turn}
    known: dict[int, Entry] = {}
    left = [tip for tip in change_graph.tips(moments) if tip not in path]
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


def _words(change: Change, known: dict[int, Entry], labels: dict[str, str | None]) -> str:
    if change.kind in change_graph.TURNS:
        seen = [known[seq] for seq in change.seqs if seq in known]
        kind = "" if change.kind == "append" else f"{change.kind}: "
        if not seen:
            return f"{kind}{count(len(change.seqs), 'entry', 'entries')}"
        return kind + " ".join(_said(seen[0])[:200].split())
    return change_in_words(change, labels)


def _said(entry: Entry) -> str:
    if isinstance(entry, ChatMessage):
        return f"{entry.role}: {entry.text}"
    if isinstance(entry, ToolCall):
        return f"call of {entry.name}"
    return f"summary: {entry.text}" if isinstance(entry, Summary) else entry.kind


def _compare(facts: SessionInfo, moments: list[Moment]) -> Node:
    """Choose two points to compare."""
    if len(moments) < 2:
        return None
    versions = [moment.version for moment in reversed(moments)]

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
