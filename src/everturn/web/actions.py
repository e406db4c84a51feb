"""What changes a session: the forms, and what they do. Every change names the version it was decided on.

So a page that has grown old changes nothing: it says that the session has moved on.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from everturn.core.numbers import count, size
from everturn.errors import InvalidInput
from everturn.model import Receipt, SessionInfo, Snapshot
from everturn.ui.html import Html, Node, shown, tag
from everturn.web.compare import changed
from everturn.web.links import link, number_in, url
from everturn.web.page import Inspector, ago, inspector_of, page

DONE = {
    "snapshot": "A snapshot was saved.",
    "rollback": "The session was rolled back.",
    "undo": "It was undone.",
    "trim": "The session was trimmed.",
    "clear": "The session was cleared.",
    "fork": "This session was forked.",
}
CAN_UNDO = {"rollback", "trim", "clear"}


# --- forms -----------------------------------------------------------------------------------------------------------


def form(facts: SessionInfo, verb: str, label: str, *fields: Node, class_: str | None = None) -> Html:
    """A form that changes this session if it is still what the page shows."""
    return tag(
        "form",
        tag("input", type="hidden", name="id", value=facts.session_id),
        tag("input", type="hidden", name="life", value=facts.life),
        tag("input", type="hidden", name="version", value=facts.version),
        *fields,
        tag("button", label, type="submit"),
        method="post",
        action=url(f"/act/{verb}"),
        class_=class_,
        data_verb=verb,
    )


def buttons(inspector: Inspector, facts: SessionInfo) -> Node:
    if not inspector.can_change:
        return None
    undo = form(facts, "undo", "Undo") if facts.undo_steps else None
    return tag(
        "details",
        tag("summary", "Change this session"),
        tag(
            "div",
            form(facts, "snapshot", "Save snapshot", _field("label", "label (optional)", required=False)),
            undo,
            form(facts, "fork", "Fork", _field("new", "new session id")),
            form(facts, "trim", "Trim", _field("messages", "messages to keep", type_="number")),
            form(facts, "clear", "Clear"),
            link("/erase", "Erase for good…", id=facts.session_id, class_="danger"),
            class_="actions",
        ),
    )


def _field(name: str, label: str, *, type_: str = "text", required: bool = True) -> Html:
    return tag(
        "input",
        name=name,
        type=type_,
        min="0" if type_ == "number" else None,
        placeholder=label,
        aria_label=label,
        required=required,
    )


def snapshot_list(inspector: Inspector, facts: SessionInfo, snapshots: list[Snapshot]) -> Node:
    if not snapshots:
        return None
    return tag(
        "section",
        tag("h2", "Snapshots"),
        tag(
            "ul",
            [
                tag(
                    "li",
                    link("/session", shown(one.label or one.id), id=facts.session_id, at=one.id),
                    tag("span", f" version {one.version:,}, {count(one.messages, 'message')}, ", ago(one.created_at)),
                    [" ", link("/rollback", "roll back…", id=facts.session_id, to=one.id)]
                    if inspector.can_change
                    else None,
                )
                for one in reversed(snapshots)
            ],
        ),
        class_="snapshots",
    )


def toast(inspector: Inspector, facts: SessionInfo, done: str | None) -> Node:
    """What was just done, and the way back."""
    if done not in DONE:
        return None
    undo = form(facts, "undo", "Undo") if inspector.can_change and done in CAN_UNDO and facts.undo_steps else None
    return tag("div", tag("span", DONE[done]), undo, class_="toast", role="status")


async def rollback_page(request: Request) -> Response:
    """Exactly what a rollback takes away and brings back, before it is done."""
    inspector = _allowed(request)
    session_id, to = request.query_params.get("id", ""), request.query_params.get("to", "")
    facts = await inspector.store.info(session_id)
    found = await inspector.store.diff(session_id, facts.version, to)
    label = next((one.label for one in await inspector.store.list_snapshots(session_id) if one.id == to), None)
    return page(
        inspector,
        f"Roll back {session_id}",
        tag("h1", "Roll back ", shown(session_id), " to ", shown(label or to), "?"),
        tag("p", "Nothing is destroyed: undo takes it back, and the snapshot stays."),
        form(facts, "rollback", "Roll back", tag("input", type="hidden", name="to", value=to), class_="bar"),
        link("/session", "No, leave it", id=session_id),
        changed(found, facts.version, to),
    )


async def erase_page(request: Request) -> Response:
    inspector = _allowed(request)
    session_id = request.query_params.get("id", "")
    facts = await inspector.store.info(session_id)
    words = f"{count(facts.messages, 'message')}, {count(facts.snapshots, 'snapshot')}, {size(facts.bytes)}"
    return page(
        inspector,
        f"Erase {session_id}",
        tag("h1", "Erase ", shown(session_id), "?"),
        tag("p", f"This removes {words}, for good. There is no undo.", class_="error"),
        form(facts, "erase", "Erase for good", _field("confirm", "type the session's id"), class_="bar"),
        link("/session", "No, leave it", id=session_id),
    )


# --- what they do ----------------------------------------------------------------------------------------------------


def _allowed(request: Request) -> Inspector:
    inspector = inspector_of(request)
    if not inspector.can_change:
        raise InvalidInput("this inspector is read-only; start it with --allow-changes", path="change")
    return inspector


async def act(request: Request) -> Response:
    """Do what a form says, then show the session."""
    inspector = inspector_of(request)
    if not inspector.can_change:
        return PlainTextResponse("This inspector is read-only; start it with --allow-changes.\n", 403)
    verb = request.path_params["verb"]
    fields = {name: values[-1] for name, values in parse_qs((await request.body()).decode()).items()}
    session_id = fields.get("id", "")
    if verb == "erase":
        return await _erase(inspector, session_id, fields)
    target = await _change(inspector, verb, session_id, fields)
    return RedirectResponse(url("/session", id=target, done=verb), 303)


async def _change(inspector: Inspector, verb: str, session_id: str, fields: Mapping[str, str]) -> str:
    """Apply the change. Returns the session to show."""
    store = inspector.store
    version = fields.get("version", "")
    expected = Receipt(session_id, fields.get("life", ""), number_in(version, "version"))
    match verb:
        case "snapshot":
            await store.save_snapshot(session_id, fields.get("label") or None, expected_version=expected)
        case "rollback":
            await store.rollback_to_snapshot(session_id, fields.get("to", ""), expected_version=expected)
        case "undo":
            await store.undo(session_id, expected_version=expected)
        case "fork":
            await store.fork(session_id, fields.get("new", ""), expected_version=expected)
            return fields.get("new", "")
        case "trim":
            messages = number_in(fields.get("messages", ""), "messages")
            await store.trim(session_id, max_messages=messages, expected_version=expected)
        case "clear":
            await store.clear(session_id, expected_version=expected)
        case _:
            raise InvalidInput(f"{verb!r} is nothing that can be done here", path="verb")
    return session_id


async def _erase(inspector: Inspector, session_id: str, fields: Mapping[str, str]) -> Response:
    if fields.get("confirm") != session_id:
        raise InvalidInput("is not the session's id; nothing was erased", path="confirm")
    receipt = await inspector.store.erase(session_id)
    removed = (
        f"{count(receipt.entries, 'entry', 'entries')}, {count(receipt.snapshots, 'snapshot')}, {size(receipt.bytes)}."
    )
    rest = None if receipt.complete else "A reader or a replica can still see it; erase again later."
    return page(
        inspector,
        "Erased",
        tag("h1", "Erased ", shown(session_id)),
        tag("p", removed, role="status"),
        tag("p", rest, class_="error") if rest else None,
        *(tag("p", f"Bytes may remain in {place}.") for place in receipt.remains),
        link("/", "All sessions"),
    )
