"""Stores of several backends that act as one: every call is made on all of them, and what they say must be the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import pytest

from everturn import (
    Change,
    Compaction,
    Effect,
    ErasureReceipt,
    HeldLease,
    Lease,
    LeaseHeld,
    LeaseLost,
    MemoryStore,
    MemoryStoreError,
    Page,
    Receipt,
    SessionState,
    Snapshot,
    Turn,
    Unsupported,
)

NAMES: dict[type, tuple[str, ...]] = {Turn: (), Snapshot: ("id", "life"), Change: ("snapshot",), Page: ("next",)}
OVER_ALL_SESSIONS = ("find", "sessions")  # what some backends cannot do


@dataclass(frozen=True)
class Said:
    """A call that was made while the first of the backends was in the middle of another, and what it answered."""

    chorus: Chorus
    method: str
    args: tuple[Any, ...]
    named: dict[str, Any]
    answer: Any


@dataclass
class Circle:
    """The backends, and which of the random names they gave (lives, snapshots, pages) stand for the same thing."""

    backends: Sequence[str]
    _theirs: dict[tuple[int, str], str] = field(default_factory=dict)  # by backend and the name that the first one gave
    _firsts: dict[tuple[int, str], str] = field(default_factory=dict)  # and the other way round
    _leases: dict[tuple[int, int], Lease] = field(default_factory=dict)  # by backend and id() of the first one's
    solo: bool = False
    said: list[Said] = field(default_factory=list)

    def translated(self, value: Any, backend: int) -> Any:
        """What a backend is given where the first is given this."""
        if isinstance(value, str):
            return self._theirs.get((backend, value), value)
        if isinstance(value, Lease):
            return self._leases[backend, id(value)] if backend else value
        if isinstance(value, Snapshot):
            return msgspec.structs.replace(value, id=self.translated(value.id, backend))
        if isinstance(value, Receipt | SessionState):
            return msgspec.structs.replace(value, life=self.translated(value.life, backend))
        return value

    def agree(self, first: Any, other: Any, backend: int) -> None:
        """Raises AssertionError where the two differ in more than random names, which must stand for each other."""
        assert type(first) is type(other), f"{other!r} of {self.backends[backend]} instead of {first!r}"
        if isinstance(first, list | tuple):
            assert len(first) == len(other), f"{other!r} of {self.backends[backend]} instead of {first!r}"
            for one, another in zip(first, other, strict=True):
                self.agree(one, another, backend)
        elif isinstance(first, ErasureReceipt):
            # How much of lives that expired was left to be removed is for each backend to say.
            assert (first.session_id, first.complete) == (other.session_id, other.complete)
        elif isinstance(first, Lease):
            self._leases[backend, id(first)] = other
        elif isinstance(first, LeaseHeld | LeaseLost):
            assert first.session_id == other.session_id  # how far tokens go in earlier lives is for each to say
        elif isinstance(first, HeldLease):
            assert first.until == pytest.approx(other.until)
        elif isinstance(first, Effect):
            assert (first.lease is None) is (other.lease is None)
            for name in ("key", "status", "request", "result", "error", "attempt", "version", "note"):
                assert getattr(first, name) == getattr(other, name), name
        elif isinstance(first, msgspec.Struct):
            names = NAMES.get(type(first), ("life",))
            for name in first.__struct_fields__:
                compare = self._stand_for_each_other if name in names else self.agree
                compare(getattr(first, name), getattr(other, name), backend)
        elif isinstance(first, MemoryStoreError):
            for name, value in vars(first).items():
                compare = self._stand_for_each_other if name == "snapshot" else self.agree
                compare(value, vars(other)[name], backend)
        else:
            assert first == other, f"{other!r} of {self.backends[backend]} instead of {first!r}"

    def _stand_for_each_other(self, first: str | None, other: str | None, backend: int) -> None:
        if first is None or other is None or first == other:
            assert first == other
        else:
            assert self._theirs.setdefault((backend, first), other) == other
            assert self._firsts.setdefault((backend, other), first) == first


class Chorus:
    """Stores that are called as one. What the first of them says is the answer, once all have said the same."""

    def __init__(self, circle: Circle, stores: Sequence[MemoryStore]) -> None:
        self.circle = circle
        self.stores = stores

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self._call, method)

    def _call(self, method: str, *args: Any, **named: Any) -> Any:
        answer = self._of_one(0, method, args, named)
        if self.circle.solo:
            self.circle.said.append(Said(self, method, args, named, answer))
        else:
            for backend in range(1, len(self.stores)):
                self._compare(backend, method, args, named, answer)
            self.circle.said.clear()
        if isinstance(answer, MemoryStoreError):
            raise answer
        return answer

    def _of_one(self, backend: int, method: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
        args = [self.circle.translated(value, backend) for value in args]
        named = {name: self.circle.translated(value, backend) for name, value in named.items()}
        if (count := named.get("count_tokens")) is not None:
            named["count_tokens"] = self._counting(backend, count)
        if method == "fold":
            args[1] = self._counting(backend, args[1])
        try:
            return getattr(self.stores[backend], method)(*args, **named)
        except MemoryStoreError as error:
            return error

    def _compare(self, backend: int, method: str, args: Sequence[Any], named: dict[str, Any], answer: Any) -> None:
        theirs = self._of_one(backend, method, args, named)
        if method in OVER_ALL_SESSIONS and isinstance(theirs, Unsupported):
            return
        if isinstance(answer, Compaction) and not args:
            return  # of all sessions: how much was left of those that expired is for each backend to say
        if method == "find" and "session_id" not in named:
            answer, theirs = (sorted(found, key=lambda match: match.session_id) for found in (answer, theirs))
        self.circle.agree(answer, theirs, backend)

    def _counting(self, backend: int, count: Callable[..., Any]) -> Callable[..., Any]:
        """Others may work while a trim counts, or a fold asks its model. What they do then to the first backend is
        done to each in its turn."""

        def count_alone(*asked: Any) -> Any:
            self.circle.solo = True
            try:
                return count(*asked)
            finally:
                self.circle.solo = False

        done_to_the_first = iter(self.circle.said)

        def count_after_them(*asked: Any) -> Any:
            for said in done_to_the_first:
                said.chorus._compare(backend, said.method, said.args, said.named, said.answer)
            return count(*asked)

        return count_after_them if backend else count_alone
