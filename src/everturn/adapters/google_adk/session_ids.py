"""Session ids of an ADK session, of an app's `app:` state and of a user's `user:` state. Pure."""

from __future__ import annotations

from everturn import InvalidInput

LONGEST = 512  # bytes of a session id
SEPARATOR = "/"  # between app, user and session
STATE = "#state"  # suffix of the app, or the app and user, whose shared state it is
EFFECTS = "#effects"  # suffix of the session whose effects it has


def session_of(app_name: str, user_id: str, session_id: str) -> str:
    """Return the everturn session id of an ADK session: `app/user/session`.

    In each of the three `%` is written `%25`, `/` `%2F` and `#` `%23`, so that no two share an id. Raises InvalidInput
    if they are too long together. (The store's own error would show an id that the caller never gave.)
    """
    name = f"{prefix_of(app_name, user_id)}{_escaped(session_id)}"
    _check_length(name, "app_name, user_id, session_id", "a session")
    return name


def prefix_of(app_name: str, user_id: str | None = None) -> str:
    """Return the common prefix of the session ids of an app, or of one of its users."""
    app = f"{_escaped(app_name)}{SEPARATOR}"
    return app if user_id is None else f"{app}{_escaped(user_id)}{SEPARATOR}"


def state_of(app_name: str, user_id: str | None = None) -> str:
    """Return the session id of `app:` state, or of a user's `user:` state. Raises InvalidInput as `session_of` does."""
    name = f"{prefix_of(app_name, user_id)[:-1]}{STATE}"
    _check_length(name, "app_name" if user_id is None else "app_name, user_id", "their shared state")
    return name


def effects_of(app_name: str, user_id: str, session_id: str) -> str:
    """Return the id of the session with the effects of an ADK session, which would make its objects stale.

    Raises InvalidInput as `session_of` does.
    """
    name = f"{session_of(app_name, user_id, session_id)}{EFFECTS}"
    _check_length(name, "app_name, user_id, session_id", "the effects of a session")
    return name


def sessions_of(app_name: str, user_id: str, session_id: str) -> list[str]:
    """Return the ids of all sessions of an ADK session: its own, and that of its effects unless it is too long."""
    name = session_of(app_name, user_id, session_id)
    return [name, f"{name}{EFFECTS}"] if len(f"{name}{EFFECTS}".encode(errors="replace")) <= LONGEST else [name]


def names_of(session_id: str) -> tuple[str, str, str] | None:
    """Return app, user and session of an id that `session_of` made; None for any other id."""
    names = session_id.split(SEPARATOR)
    if len(names) != 3 or "#" in session_id:
        return None
    app, user, session = map(_plain, names)
    return app, user, session


def _check_length(name: str, names: str, of: str) -> None:
    length = len(name) if name.isascii() else len(name.encode(errors="replace"))
    if length > LONGEST:
        raise InvalidInput(f"together name {of}, of at most {LONGEST} bytes, and these make {length}", path=names)


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace(SEPARATOR, "%2F").replace("#", "%23")


def _plain(escaped: str) -> str:
    return escaped.replace("%23", "#").replace("%2F", SEPARATOR).replace("%25", "%")
