"""Masks secrets in text that people and logs see: passwords in URLs and in settings. Pure.

A URL that cannot be parsed may have its password anywhere: in doubt, all of it is masked.
"""

from __future__ import annotations

import re

MASK = "***"
ESCAPES = "write special characters of user name and password as %40 (@), %2F (/), %3F (?), %23 (#), %25 (%)"
"""Advice for a URL that cannot be parsed. It is shown instead of the bad part, which may be of the password."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_SETTING = re.compile(
    r"(?i)\b([\w-]*(?:password|passwd|passphrase|pwd|secret|token)[\w-]*\s*=\s*)('[^']*'|[^\s&,;'\"]+)"
)
_SECRET = re.compile(r"(?i)pass|pwd|secret|token")
_SUSPICIOUS = re.compile(r"(?i)@|pass|pwd|secret|token")


def is_secret(setting: str) -> bool:
    """Whether the value of a setting of this name is a secret: `sentinel_password`, `passfile`."""
    return _SECRET.search(setting) is not None


def masked_url(url: str) -> str:
    """Mask the password of a URL, and leave out its options: `postgresql://me:***@host/db`.

    The password may hold any character, escaped or not: it ends at the last @. Text without a scheme that may hold one
    is masked whole.
    """
    scheme, colon, rest = url.partition("://")
    if not colon:
        return MASK if _SUSPICIOUS.search(url) else url
    if scheme.lower() == "sqlite" and ("@" not in rest or rest.startswith("/")):
        return f"{scheme}://{rest.partition('?')[0]}"  # a path: an @ in it is an @
    login, at, place = rest.rpartition("@")
    if not at:
        return f"{scheme}://{rest.partition('?')[0]}"
    if "?" in login:  # of an option, or of a password: it cannot be told
        return f"{scheme}://{MASK}"
    user, colon, _ = login.partition(":")
    shown = f"{user}:{MASK}" if colon and not re.search(r"[/#@]", user) else MASK
    return f"{scheme}://{shown}@{place.partition('?')[0]}"


def masked(text: str) -> str:
    """Mask the URLs in a text, and the values of settings such as `password=...`."""
    return _SETTING.sub(rf"\1{MASK}", _URL.sub(lambda found: masked_url(found[0]), text))
