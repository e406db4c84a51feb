"""Names: the everturn sessions in which an ADK session, an app's state and a user's state stand. Pure."""

from __future__ import annotations

from everturn import InvalidInput

LONGEST = 512  # bytes of the name of a session
SEPARATOR = "/"  # between app, user and session
STATE = "#state"  # behind the app, or the app and user, whose shared state it is


def session_of(app_name: str, user_id: str, session_id: str) -> str:
    """The session of an ADK session: `app/user/session`.

    In each of the three `%` is written `%25`, `/` `%2F` and `#` `%23`, so that no two share a session. Raises
    InvalidInput if they are too long together: the store would tell of a name that the caller never gave.
    """
    name = f"{prefix_of(app_name, user_id)}{_escaped(session_id)}"
    _check_length(name, "app_name, user_id, session_id", "a session")
    return name


def prefix_of(app_name: str, user_id: str | None = None) -> str:
    """What the sessions of an app, or of one user of it, begin with."""
    app = f"{_escaped(app_name)}{SEPARATOR}"
    return app if user_id is None else f"{app}{_escaped(user_id)}{SEPARATOR}"


def state_of(app_name: str, user_id: str | None = None) -> str:
    """The session of an app's `app:` state, or of a user's `user:` state. Raises InvalidInput as `session_of` does."""
    name = f"{prefix_of(app_name, user_id)[:-1]}{STATE}"
    _check_length(name, "app_name" if user_id is None else "app_name, user_id", "their shared state")
    return name


def names_of(session_id: str) -> tuple[str, str, str] | None:
    """The inverse of `session_of`; None for a session that is of no such form."""
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
