"""Forms that change a session, and the changes. Every form carries the version that the page showed.

So an old page changes nothing: the store refuses, and the page says that the session has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from everturn.core.numbers import count
from everturn.errors import InvalidInput
from everturn.model import Effect, Receipt, SessionInfo, Snapshot
from everturn.ui.descriptions import contents, effects_that_stay, erased, not_erased
from everturn.ui.html import Html, Node, shown, tag
from everturn.web.compare import changed
from everturn.web.effects import effect_list, effects_of
from everturn.web.links import link, number_in, point_in, url
from everturn.web.page import InspectorContext, ago, inspector_of, page

DONE = {
    "snapshot": "A snapshot was saved.",
    "rollback": "The session was rolled back.",
    "undo": "The change was undone.",
    "trim": "The session was trimmed.",
    "clear": "The session was cleared.",
    "nothing": "Nothing changed: the session was in that state already.",
    "fork": "This session was forked.",
}
CAN_UNDO = {"rollback", "trim", "clear"}  # not "nothing": undo would take back something else


# --- forms -----------------------------------------------------------------------------------------------------------


def form(facts: SessionInfo, verb: str, label: str, *fields: Node, class_: str | None = None) -> Html:
    """A form that changes this session if it is still in the state that the page shows."""
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


def buttons(inspector: InspectorContext, facts: SessionInfo) -> Node:
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


def buttons_of_the_past(inspector: InspectorContext, facts: SessionInfo, at: int | str) -> Node:
    """Ways to go on from an earlier state: return to it, or fork a session from it."""
    if not inspector.can_change:
        return None
    return tag(
        "div",
        link("/rollback", "Roll back to here…", id=facts.session_id, to=at),
        form(
            facts,
            "fork",
            "Fork from here",
            tag("input", type="hidden", name="at", value=at),
            _field("new", "new session id"),
        ),
        class_="actions",
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


def snapshot_list(inspector: InspectorContext, facts: SessionInfo, snapshots: list[Snapshot]) -> Node:
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


def toast(inspector: InspectorContext, facts: SessionInfo, done: str | None) -> Node:
    """A message about the change just made, with a button to undo it."""
    if done not in DONE:
        return None
    undo = form(facts, "undo", "Undo") if inspector.can_change and done in CAN_UNDO and facts.undo_steps else None
    return tag("div", tag("span", DONE[done]), undo, class_="toast", role="status")


async def rollback_page(request: Request) -> Response:
    """The entries that a rollback would remove from the history and bring back, and a form to do it."""
    inspector = _allowed(request)
    session_id, to = request.query_params.get("id", ""), request.query_params.get("to", "")
    facts = await inspector.store.info(session_id)
    target = point_in(to)
    if target is None:
        raise InvalidInput("is a snapshot's id or a version", path="to")
    found = await inspector.store.diff(session_id, facts.version, target)
    label = next((one.label for one in await inspector.store.list_snapshots(session_id) if one.id == to), None)
    return page(
        inspector,
        f"Roll back {session_id}",
        tag("h1", "Roll back ", shown(session_id), " to ", shown(label or _named(target)), "?"),
        tag("p", "Nothing is deleted: undo brings it back, and snapshots stay."),
        form(facts, "rollback", "Roll back", tag("input", type="hidden", name="to", value=to), class_="bar"),
        link("/session", "Cancel", id=session_id),
        effect_list("Effects that stay done", await _staying(inspector, session_id, target)),
        changed(found, facts.version, to),
    )


async def _staying(inspector: InspectorContext, session_id: str, target: int | str) -> list[Effect]:
    """The effects that a rollback to a snapshot or a version does not take back."""
    version = target
    if isinstance(target, str):
        snapshots = await inspector.store.list_snapshots(session_id)
        version = next((one.version for one in snapshots if one.id == target), 0)
    return effects_that_stay(await effects_of(inspector.store, session_id), int(version))


def _named(target: int | str) -> str:
    return f"version {target}" if isinstance(target, int) else target


async def erase_page(request: Request) -> Response:
    inspector = _allowed(request)
    session_id = request.query_params.get("id", "")
    facts = await inspector.store.info(session_id)
    return page(
        inspector,
        f"Erase {session_id}",
        tag("h1", "Erase ", shown(session_id), "?"),
        tag("p", f"This deletes {contents(facts)}, for good. It cannot be undone.", class_="error"),
        form(facts, "erase", "Erase for good", _field("confirm", "type the session's id"), class_="bar"),
        link("/session", "Cancel", id=session_id),
    )


# --- changes ---------------------------------------------------------------------------------------------------------


def _allowed(request: Request) -> InspectorContext:
    inspector = inspector_of(request)
    if not inspector.can_change:
        raise InvalidInput("this inspector is read-only; start it with --allow-changes", path="change")
    return inspector


async def act(request: Request) -> Response:
    """Make the change of a form, then show the session."""
    inspector = inspector_of(request)
    if not inspector.can_change:
        return PlainTextResponse("This inspector is read-only; start it with --allow-changes.\n", 403)
    verb = request.path_params["verb"]
    fields = {name: values[-1] for name, values in parse_qs((await request.body()).decode()).items()}
    session_id = fields.get("id", "")
    if verb == "erase":
        return await _erase(inspector, session_id, fields)
    target, is_changed = await _change(inspector, verb, session_id, fields)
    return RedirectResponse(url("/session", id=target, done=verb if is_changed else "nothing"), 303)


async def _change(
    inspector: InspectorContext, verb: str, session_id: str, fields: Mapping[str, str]
) -> tuple[str, bool]:
    """Apply the change. Returns the session to show, and whether anything was changed."""
    store = inspector.store
    version = fields.get("version", "")
    expected = Receipt(session_id, fields.get("life", ""), number_in(version, "version"))
    receipt: Receipt | None = None
    match verb:
        case "snapshot":
            await store.save_snapshot(session_id, fields.get("label") or None, expected_version=expected)
        case "rollback":
            target = point_in(fields.get("to", ""))
            receipt = await store.rollback(session_id, "" if target is None else target, expected_version=expected)
        case "undo":
            await store.undo(session_id, expected_version=expected)
        case "fork":
            new, at = fields.get("new", ""), point_in(fields.get("at", ""))
            await store.fork(session_id, new, at=at, expected_version=expected)
            return new, True
        case "trim":
            messages = number_in(fields.get("messages", ""), "messages")
            receipt = await store.trim(session_id, max_messages=messages, expected_version=expected)
        case "clear":
            receipt = await store.clear(session_id, expected_version=expected)
        case _:
            raise InvalidInput(f"{verb!r} is not a change of the inspector", path="verb")
    return session_id, receipt is None or receipt.version != expected.version


async def _erase(inspector: InspectorContext, session_id: str, fields: Mapping[str, str]) -> Response:
    if fields.get("confirm") != session_id:
        raise InvalidInput("is not the session's id; nothing was erased", path="confirm")
    receipt = await inspector.store.erase(session_id)
    return page(
        inspector,
        "Erased",
        tag("h1", "Erased ", shown(session_id)),
        tag("p", f"{erased(receipt)}.", role="status"),
        *(tag("p", sentence, class_=None if receipt.complete else "error") for sentence in not_erased(receipt)),
        link("/", "All sessions"),
    )
