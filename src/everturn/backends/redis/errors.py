"""Errors of Redis and redis-py as ours, in one place: whether the request was written, and whether to retry.

Errors are told apart by name and code, not by class: redis-py and valkey-py have the same names for different classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeAlias

import msgspec

from everturn.core.masking import masked
from everturn.core.signal_exceptions import raised_by_handler
from everturn.errors import MemoryStoreBackendError, Outcome

_CODES = {
    "NoScriptError": "NOSCRIPT",
    "ReadOnlyError": "READONLY",
    "BusyLoadingError": "LOADING",
    "OutOfMemoryError": "OOM",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "NOAUTH",
    "AuthenticationWrongNumberOfArgsError": "NOAUTH",
}
_ADVICE = {
    "OOM": "the server is at its maxmemory; give it more, or erase, trim and compact sessions",
    "READONLY": "this is a read-only replica; connect to its master, or use redis+sentinel:// or redis+cluster://",
    "LOADING": "the server is loading its data",
    "CLUSTERDOWN": "the cluster does not serve all slots",
    "MASTERDOWN": "the replica has lost its master",
    "TRYAGAIN": "the slot is being moved",
    "MOVED": "this is a node of a cluster; use redis+cluster://",
    "ASK": "the slot is being moved",
    "BUSY": "a script of someone else holds the server",
    "NOREPLICAS": "fewer replicas are connected than min-replicas-to-write demands",
    "MISCONF": "the server cannot write its data to disk",
    "NOPERM": "the user's ACL does not allow what everturn needs: EVALSHA, EVAL, and the commands in its scripts",
    "NOAUTH": "the password or user name is wrong or missing",
    "WRONGPASS": "the password or user name is wrong",
    "NOSCRIPT": "the server keeps forgetting scripts",
}
_PASSING = {"READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS"}


_TLS = {
    "hostname mismatch": "its certificate is not for this name; connect by a name that it has",
    "ip address mismatch": "its certificate is not for this address; connect by a name that it has",
    "certificate_verify_failed": "its certificate is not trusted; name the CA that signed it by ssl_ca_certs",
    "certificate_required": "it wants a certificate from us; name it by ssl_certfile and ssl_keyfile",
    "certificate required": "it wants a certificate from us; name it by ssl_certfile and ssl_keyfile",
    "wrong_version_number": "it does not speak TLS there; use its TLS port, or redis:// without TLS",
    "record_layer_failure": "it does not speak TLS there; use its TLS port, or redis:// without TLS",
    "record layer failure": "it does not speak TLS there; use its TLS port, or redis:// without TLS",
}
"""Words of OpenSSL in the error of a failed handshake, and the advice for each. A retry helps against none of them."""


class DamagedPart(MemoryStoreBackendError):
    """A part of a session is not as it was written. The caller, who knows the session, makes it a CorruptEntry."""

    def __init__(self, part: str, text: str = "") -> None:
        super().__init__(text or f"the part {part!r} of a session is damaged", outcome="unknown")
        self.part = part


_DAMAGED = re.compile(r"DAMAGED (\w+)\.")  # as lua/_state.lua says it
_ANSWERS = {"ResponseError", "BusyLoadingError", "AuthenticationError"}  # the latter two are no ResponseErrors
_QUOTED = re.compile(r",? with args beginning with:?")
_WITHIN_SCRIPT = re.compile(r": -([A-Z]+) ")


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """An error that the server answered with. It is a reply like any other until its value is needed."""

    code: str
    text: str


class OutOfStep(ConnectionError):
    """More replies came than commands were sent: from now on, no reply can be matched to its command."""

    def __init__(self) -> None:
        super().__init__("the server sent more than it was asked for")


_DRIVERS = {"RedisError", "ValkeyError", "HiredisError"}


def interruption(exc: BaseException) -> BaseException | None:
    """Return the exception that is no fault of the network and must reach the caller as it is; None if there is none.

    The handler of a signal may raise anywhere in the thread. Celery's SoftTimeLimitExceeded is recognised by its type,
    a handler's own TimeoutError by its traceback. redis-py may have wrapped either.
    """
    known = isinstance(exc, OSError | EOFError) or any(kind.__name__ in _DRIVERS for kind in type(exc).__mro__)
    if not known:
        return exc
    return raised_by_handler(exc)


Fault: TypeAlias = Callable[[str, BaseException], MemoryStoreBackendError]


def raise_as(exc: BaseException, fault: Fault, where: str) -> NoReturn:
    """Raise a fault of the network as our error, and any other exception as it is."""
    interrupting = interruption(exc)
    if interrupting is None:
        raise fault(where, exc) from exc
    raise interrupting


def is_refusal(exc: Exception) -> bool:
    """Say whether redis-py's error is an answer of the server."""
    return any(kind.__name__ in _ANSWERS for kind in type(exc).__mro__)


def refusal(exc: Exception) -> Refusal:
    code = next((_CODES[kind.__name__] for kind in type(exc).__mro__ if kind.__name__ in _CODES), None)
    exc.args = (_unquoted(str(exc)),)  # tracebacks show it as the cause
    return Refusal(code, str(exc)) if code else refusal_in(str(exc))


def refusal_in(text: str) -> Refusal:
    """Read an error of the server by the code it begins with. Before Redis 7, the code of an error in a script stands
    within the text."""
    within = _WITHIN_SCRIPT.search(text) if "user_script" in text else None
    text = _unquoted(text)
    return Refusal(within[1] if within else text.partition(" ")[0], text)


def damaged_part(answer: Refusal) -> str | None:
    """Return the part of a session that a script found damaged; None if it is another error."""
    named = _DAMAGED.search(answer.text)
    return named[1] if named else "type" if "WRONGTYPE" in answer.text else None


def _unquoted(text: str) -> str:
    """Return the text without a command's arguments, which a server may quote: they hold keys and messages."""
    return masked(_QUOTED.split(text, maxsplit=1)[0])


def refused(answer: Refusal, where: str) -> MemoryStoreBackendError:
    """Make the error for a request that the server refused to run."""
    part = damaged_part(answer)
    if part is not None:
        return DamagedPart(part, f"{where}: {answer.text}")
    advice = _ADVICE.get(answer.code)
    text = f"{where}: {answer.code}: {advice} ({answer.text})" if advice else f"{where}: {answer.text}"
    # The codes we know are given before a script writes anything. For others the outcome is not known.
    outcome: Outcome = "not_written" if advice else "unknown"
    return MemoryStoreBackendError(text, outcome=outcome, transient=answer.code in _PASSING)


def unsent(where: str, exc: BaseException) -> MemoryStoreBackendError:
    """Make the error for a request that was not sent: there was no connection."""
    if isinstance(exc, Exception) and is_refusal(exc):
        return refused(refusal(exc), where)
    said = _said(exc)
    for words, advice in _TLS.items():
        if words in said.lower():
            return MemoryStoreBackendError(f"{where}: {advice} ({said})", outcome="not_written")
    text = f"{where}: no connection: {said}; is the server up, and the address right (rediss:// if it wants TLS)?"
    return MemoryStoreBackendError(text, outcome="not_written", transient=True)


_DOUBT = "whether it was carried out is not known. Retry with the same key"


def unanswered(where: str, exc: BaseException) -> MemoryStoreBackendError:
    """Make the error for a request that was sent and not answered."""
    return MemoryStoreBackendError(f"{where}: no answer: {_said(exc)}; {_DOUBT}", outcome="unknown", transient=True)


def held_back(exc: MemoryStoreBackendError) -> MemoryStoreBackendError:
    """Make the error for a request that was not sent because a command before it failed."""
    text = str(exc.args[0]).replace(_DOUBT, "the request was not sent")
    return MemoryStoreBackendError(text, outcome="not_written", transient=exc.transient)


def exhausted(where: str, size: int) -> MemoryStoreBackendError:
    text = f"{where}: all {size} connections stayed busy; raise max_connections, or call less at a time"
    return MemoryStoreBackendError(text, outcome="not_written", transient=True)


def closed() -> MemoryStoreBackendError:
    return MemoryStoreBackendError("the store is closed; open another", outcome="not_written")


def late(where: str) -> MemoryStoreBackendError:
    """Make the error for a request that the server did not carry out: its time was over, or an edit overtook it."""
    text = (
        f"{where}: the request came too late and was not carried out: after its time-out, or behind a rollback, an "
        "undo, a replace or an erasure that it was sent before. Call again"
    )
    return MemoryStoreBackendError(text, outcome="not_written", transient=True)


def behind(where: str) -> MemoryStoreBackendError:
    """Make the error for a retry that is not sent yet: another server, whose clock is ahead, may have the request."""
    text = (
        f"{where}: its clock is behind that of another server, which may still carry out this request; it is sent here "
        "when that is over. Do the servers' clocks agree?"
    )
    return MemoryStoreBackendError(text, outcome="not_written", transient=True)


def lagging(where: str, wanted: int, got: int) -> MemoryStoreBackendError:
    text = (
        f"{where}: {got} of the {wanted} replicas asked for have the change; it is on the master, and may be lost if "
        "that fails now. Retry with the same key"
    )
    return MemoryStoreBackendError(text, outcome="unknown")  # most of the time was spent waiting for them


def _said(exc: BaseException) -> str:
    return masked(str(exc)) or type(exc).__name__
