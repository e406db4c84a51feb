"""Names of keys: those of a session share one hash tag, and no two sessions share a name, whatever their ids hold."""

from __future__ import annotations

from functools import lru_cache

_ESCAPES = {ord(char): f"%{ord(char):02X}" for char in "%{}:"}
_ORIGINALS = {escape: chr(code) for code, escape in _ESCAPES.items()}
_GLOB = {ord(char): f"\\{char}" for char in "*?[]\\^"}

KNOWN = 256  # sessions whose key names are cached: most calls are about a few
STAGED = b":staged:"  # in the keys of rows that are not visible yet, and in no others
PARTS = ("meta", "log", "others", "changes", "snapshots", "jumps")  # of a session, in the order of KEYS in every script

Keys = tuple[bytes, ...]


def escape(text: str) -> str:
    return text.translate(_ESCAPES)


def unescape(text: str) -> str:
    first, *rest = text.split("%")
    return first + "".join(_ORIGINALS["%" + part[:2]] + part[2:] for part in rest)


def session_meta(staged: Keys) -> bytes:
    """Return the meta key of the session that staged keys will become."""
    return staged[0].partition(STAGED)[0] + b":meta"


class KeyNames:
    """The names of keys in one namespace: `everturn:{namespace:session}:part`."""

    def __init__(self, namespace: str) -> None:
        self._prefix = f"everturn:{{{escape(namespace)}:"
        self.keys = lru_cache(KNOWN)(self._keys)
        """Returns a session's six keys, in the order of KEYS in every script."""

    def _keys(self, session_id: str) -> Keys:
        base = f"{self._prefix}{session_id.translate(_ESCAPES)}}}:"
        return tuple([f"{base}{part}".encode() for part in PARTS])

    def staged(self, session_id: str, token: bytes) -> Keys:
        """Return the keys of rows that are not visible yet, in the same order and slot as the session's."""
        base = f"{self._prefix}{escape(session_id)}}}{STAGED.decode()}{token.hex()}:"
        return tuple([f"{base}{part}".encode() for part in PARTS])

    def pattern(self, prefix: str, part: str) -> str:
        """Return the pattern of SCAN for this part of the sessions whose id begins with `prefix`."""
        return f"{self._prefix}{escape(prefix)}".translate(_GLOB) + f"*}}:{part}"

    def session_of(self, key: bytes) -> str:
        """Return the id of the session that a key belongs to."""
        return unescape(key.decode()[len(self._prefix) :].partition("}")[0])
