"""Claims of folds: sessions that say who may ask a model. No method shows them to users. (fold.py makes them.)"""

from __future__ import annotations

import msgspec

from everturn.model import Page

CLAIMS = "everturn:fold:"  # sessions of this name, with a digest behind it, are claims


def is_claim(session_id: str) -> bool:
    """Whether a session is a claim."""
    return session_id.startswith(CLAIMS)


def without_claims(page: Page) -> Page:
    """Leave the claims out of a page of sessions. It may have fewer than were asked for, and yet a next page."""
    if not any(is_claim(session.session_id) for session in page.sessions):
        return page
    users = (session for session in page.sessions if not is_claim(session.session_id))
    return msgspec.structs.replace(page, sessions=tuple(users))
