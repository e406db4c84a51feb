"""Errors of botocore as ours: the one place where they are translated, and the table of what each says about a change.

DynamoDB applies nothing of a request that it answers with an error of the client (400). An error of the server (5xx),
or of the network after the request was sent, leaves a doubt. docs/storage-dynamodb.md has the table for users.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from botocore import exceptions
from botocore.parsers import ResponseParserError

from everturn.backends.dynamodb.permissions import OPERATIONS
from everturn.core.masking import masked
from everturn.errors import MemoryStoreBackendError, Outcome

Kind: TypeAlias = Literal["throttled", "contended", "lost", "refused"]
"""Of an error: no capacity; another's transaction was under way; the server or the network failed; anything else."""


class ConditionNotMet(Exception):
    """A conditional write that was not applied, because the table is not as it was planned on.

    `items` has for each item of the request: the stored item, if its condition failed (None: there is none); UNASKED,
    if it was not the reason. `all_checked`: every other item was as it was planned on. If not, nothing is known of
    them.
    """

    def __init__(self, items: list[Any], *, all_checked: bool = True) -> None:
        super().__init__("a condition of the request was not met")
        self.items = items
        self.all_checked = all_checked


UNASKED: Any = object()


class UnreadableAnswer(Exception):
    """An answer that is not from DynamoDB, or not whole."""


class Meaning(msgspec.Struct, frozen=True):
    """The meaning of an error: in words, what became of a change, and whether sending it again may help."""

    advice: str
    outcome: Outcome = "not_written"
    transient: bool = False
    kind: Kind = "refused"


THROTTLED = Meaning("it has no capacity left for the request", transient=True, kind="throttled")
CONTENDED = Meaning("another transaction was under way on the session", transient=True, kind="contended")
FAILED = Meaning("it failed", "unknown", transient=True, kind="lost")
UNDER_WAY = Meaning("an earlier attempt at the request is under way", "unknown", transient=True)
BUSY = Meaning("the table is being created or changed", transient=True)
NO_TABLE = Meaning("there is no such table; create it by everturn init, or open with create=true")
NOT_KNOWN = Meaning("the credentials are not known there")
EXPIRED = Meaning("the credentials have expired")
NO_CREDENTIALS = Meaning("there were no credentials in the request")
WRONG_SIGNATURE = Meaning("the credentials or the clock of this machine are wrong")
DENIED = Meaning("the credentials lack a permission; the least policy: everturn docs storage-dynamodb")
NOT_VALID = Meaning("it refused the request as not valid; is the table one that everturn made?")
TOO_LARGE = Meaning("the session has reached the size that an index of the table allows; remove the index")
OTHER_REGION = Meaning("another region writes the same session; use the table in one region", transient=True)
REFUSED = Meaning("it refused the request")

CODES: Mapping[str, Meaning] = {
    "ProvisionedThroughputExceededException": THROTTLED,
    "ThrottlingException": THROTTLED,
    "Throttling": THROTTLED,  # of the service that hands out credentials
    "RequestLimitExceeded": THROTTLED,
    "LimitExceededException": THROTTLED,
    "TransactionConflictException": CONTENDED,
    "TransactionInProgressException": UNDER_WAY,
    "IdempotentParameterMismatchException": REFUSED,
    "ReplicatedWriteConflictException": OTHER_REGION,
    "InternalServerError": FAILED,
    "InternalFailure": FAILED,
    "ServiceUnavailable": FAILED,
    "ServiceUnavailableException": FAILED,
    "RequestTimeout": FAILED,
    "RequestTimeoutException": FAILED,
    "ItemCollectionSizeLimitExceededException": TOO_LARGE,
    "ValidationException": NOT_VALID,
    "SerializationException": NOT_VALID,
    "ResourceNotFoundException": NO_TABLE,
    "TableNotFoundException": NO_TABLE,
    "ResourceInUseException": BUSY,
    "AccessDeniedException": DENIED,
    "AccessDenied": DENIED,  # of the service that hands out credentials
    "ExpiredTokenException": EXPIRED,
    "ExpiredToken": EXPIRED,
    "UnrecognizedClientException": NOT_KNOWN,
    "InvalidClientTokenId": NOT_KNOWN,
    "OptInRequired": NOT_KNOWN,
    "InvalidSignatureException": WRONG_SIGNATURE,
    "SignatureDoesNotMatch": WRONG_SIGNATURE,
    "RequestExpired": WRONG_SIGNATURE,
    "IncompleteSignature": WRONG_SIGNATURE,
    "IncompleteSignatureException": WRONG_SIGNATURE,
    "MissingAuthenticationToken": NO_CREDENTIALS,
    "MissingAuthenticationTokenException": NO_CREDENTIALS,
}
"""Meanings of the codes that DynamoDB answers with. Of others the status decides: `_unlisted`."""

REASONS: Mapping[str, Meaning] = {
    "TransactionConflict": CONTENDED,
    "ProvisionedThroughputExceeded": THROTTLED,
    "ThrottlingError": THROTTLED,
    "ItemCollectionSizeLimitExceeded": TOO_LARGE,
    "ValidationError": NOT_VALID,
    "AccessDenied": DENIED,
    "DuplicateItem": REFUSED,
}
"""Meanings of the reasons for which a transaction is cancelled, beside a condition that was not met. Each says that
nothing of the transaction was written."""

UNREACHED = Meaning("it cannot be reached", transient=True, kind="lost")
UNMADE = Meaning("the request could not be made")
UNTRUSTED = Meaning("no secure connection could be made")
BROKEN = Meaning("the connection broke", "unknown", transient=True, kind="lost")
UNREADABLE = Meaning("its answer cannot be read; is there a proxy in between?", "unknown", transient=True, kind="lost")
BUG = Meaning("the driver failed", "unknown")

RAISED: Mapping[type[BaseException], Meaning] = {
    # Before the request has left: it cannot have been applied.
    exceptions.EndpointConnectionError: UNREACHED,
    exceptions.ConnectTimeoutError: UNREACHED,
    exceptions.ProxyConnectionError: UNREACHED,
    exceptions.CredentialRetrievalError: UNREACHED,
    exceptions.MetadataRetrievalError: UNREACHED,
    exceptions.NoCredentialsError: UNMADE,
    exceptions.PartialCredentialsError: UNMADE,
    exceptions.NoAuthTokenError: UNMADE,
    exceptions.TokenRetrievalError: UNMADE,
    exceptions.SSOError: UNMADE,
    exceptions.RefreshWithMFAUnsupportedError: UNMADE,
    exceptions.InfiniteLoopConfigError: UNMADE,
    exceptions.InvalidConfigError: UNMADE,
    exceptions.ConfigNotFound: UNMADE,
    exceptions.ConfigParseError: UNMADE,
    exceptions.ProfileNotFound: UNMADE,
    exceptions.NoRegionError: UNMADE,
    exceptions.InvalidRegionError: UNMADE,
    exceptions.UnknownRegionError: UNMADE,
    exceptions.UnknownEndpointError: UNMADE,
    exceptions.EndpointResolutionError: UNMADE,
    exceptions.UnknownSignatureVersionError: UNMADE,
    exceptions.UnsupportedSignatureVersionError: UNMADE,
    exceptions.InvalidProxiesConfigError: UNMADE,
    exceptions.MissingDependencyException: UNMADE,
    exceptions.DataNotFoundError: UNMADE,
    exceptions.ParamValidationError: UNMADE,
    # After it: nobody knows.
    exceptions.ReadTimeoutError: BROKEN,
    exceptions.ConnectionClosedError: BROKEN,
    exceptions.ConnectionError: BROKEN,
    exceptions.HTTPClientError: BROKEN,
    exceptions.ResponseStreamingError: BROKEN,
    exceptions.IncompleteReadError: BROKEN,
    exceptions.ChecksumError: UNREADABLE,
    ResponseParserError: UNREADABLE,
    UnreadableAnswer: UNREADABLE,
    OSError: BROKEN,
    **{getattr(exceptions, name): UNMADE for name in ("LoginError",) if hasattr(exceptions, name)},  # 1.41 and later
}
"""Meanings of the exceptions of botocore that are no answer. A class stands for its subclasses; anything else: BUG."""

_HANDSHAKE = ("WRONG_VERSION_NUMBER", "HANDSHAKE_FAILURE", "PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "UNKNOWN_CA")
_TOO_LARGE_STATUS, _CLIENT_ERROR, _SERVER_ERROR = 413, 400, 500
_MAY_PASS = frozenset({408, 425, 429})
_NO_OPERATION = frozenset({"UnknownOperationException", "NotImplemented", "UnsupportedOperation"})


def from_driver(exc: BaseException, name: str, *, writes: bool) -> MemoryStoreBackendError | ConditionNotMet:
    """Translate an error of botocore. `writes`: the request would have changed something."""
    if isinstance(exc, exceptions.ClientError):
        code = _code(exc.response)
        if code == "ConditionalCheckFailedException":
            return ConditionNotMet([exc.response.get("Item")])
        reasons: list[Mapping[str, Any]] = exc.response.get("CancellationReasons") or []
        codes = [str(reason.get("Code")) for reason in reasons]
        if code == "TransactionCanceledException" and "ConditionalCheckFailed" in codes:
            told = [one.get("Item") if one.get("Code") == "ConditionalCheckFailed" else UNASKED for one in reasons]
            return ConditionNotMet(told, all_checked={*codes} <= {"ConditionalCheckFailed", "None"})
    meaning = meaning_of(exc)
    outcome = meaning.outcome if writes else "not_written"
    return _error(f"{name}: {meaning.advice} ({_text(exc)})", outcome, transient=meaning.transient)


def meaning_of(exc: BaseException) -> Meaning:
    """Find the meaning of an error that is not about a condition. What is in no table may have been applied."""
    if isinstance(exc, exceptions.ClientError):
        meaning = _answered(exc)
        if exc.operation_name in OPERATIONS:
            return meaning
        # The request for credentials was refused, so that ours was never sent.
        return msgspec.structs.replace(meaning, outcome="not_written")
    if isinstance(exc, exceptions.SSLError):
        return UNTRUSTED if _is_handshake(exc) else BROKEN
    for kind in type(exc).__mro__:
        if kind in RAISED:
            return RAISED[kind]
    return BUG


def _answered(exc: exceptions.ClientError) -> Meaning:
    code = _code(exc.response)
    if code == "TransactionCanceledException":
        return _cancelled(exc.response.get("CancellationReasons") or [])
    status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return CODES.get(code) or _unlisted(status)


def _unlisted(status: int) -> Meaning:
    """Judge an answer whose code we do not know by its status. One that is not 400 need not be from DynamoDB."""
    if status in (_CLIENT_ERROR, _TOO_LARGE_STATUS):
        return REFUSED
    passing = status >= _SERVER_ERROR or status in _MAY_PASS
    return Meaning(f"the answer has the status {status}", "unknown", transient=passing, kind="lost")


def _cancelled(reasons: list[Mapping[str, Any]]) -> Meaning:
    """Find the meaning of a cancelled transaction: that of a reason that lasts, if there is one."""
    found = [REASONS.get(code, REFUSED) for code in _reason_codes(reasons)]
    if not found:
        return REFUSED
    return min(found, key=lambda meaning: (meaning.transient, meaning.kind == "contended"))


def _reason_codes(reasons: list[Mapping[str, Any]]) -> Iterator[str]:
    return (str(reason.get("Code")) for reason in reasons if reason.get("Code") not in (None, "None"))


def is_denied(error: MemoryStoreBackendError) -> bool:
    """Say whether the credentials lack a permission."""
    return _cause_means(error, DENIED)


def is_contended(error: MemoryStoreBackendError) -> bool:
    """Say whether another transaction on the same items was the reason."""
    return _cause_means(error, CONTENDED)


def is_unsupported(error: MemoryStoreBackendError) -> bool:
    """Say whether the operation is not known there: a stand-in has not all of them."""
    told = error.__cause__
    return isinstance(told, exceptions.ClientError) and _code(told.response) in _NO_OPERATION


def _cause_means(error: MemoryStoreBackendError, meaning: Meaning) -> bool:
    return error.__cause__ is not None and meaning_of(error.__cause__) is meaning


def _is_handshake(exc: exceptions.SSLError) -> bool:
    """Say whether a connection was not made. An error of TLS may also come later, when the request was sent."""
    told = exc.kwargs.get("error")
    while isinstance(told, BaseException):
        if isinstance(told, ssl.SSLCertVerificationError):
            return True
        if isinstance(told, ssl.SSLError) and any(word in str(told.reason or told) for word in _HANDSHAKE):
            return True
        told = next((each for each in told.args if isinstance(each, BaseException)), told.__cause__)
    return False


def _code(response: Mapping[str, Any]) -> str:
    return str(response.get("Error", {}).get("Code", ""))


def _text(exc: BaseException) -> str:
    """Return the text of an error in one line, with addresses masked. It quotes no stored value."""
    if isinstance(exc, exceptions.ClientError):
        told = sorted({*_reason_codes(exc.response.get("CancellationReasons") or [])})
        return ", ".join(told) or _code(exc.response) or "without a code"
    if isinstance(exc, exceptions.ParamValidationError):
        return type(exc).__name__  # its text has the parameters
    return masked(" ".join(str(exc).split())) or type(exc).__name__


def _error(text: str, outcome: Outcome, *, transient: bool) -> MemoryStoreBackendError:
    return MemoryStoreBackendError(text, outcome=outcome, transient=transient)


def unanswered(name: str, *, writes: bool) -> MemoryStoreBackendError:
    """Make the error for a request that was sent, and not answered by the deadline."""
    outcome: Outcome = "unknown" if writes else "not_written"
    return _error(f"{name}: it did not answer within the time-out", outcome, transient=False)


def exhausted(name: str) -> MemoryStoreBackendError:
    """Make the error for a request that no thread was free for: it was not sent."""
    text = f"{name}: no connection was free within the time-out; raise max_connections or timeout"
    return _error(text, "not_written", transient=False)


def contended(name: str) -> MemoryStoreBackendError:
    """Make the error for a change that was overtaken by others until its deadline."""
    text = f"{name}: other writers were faster at this session until the time-out; raise timeout"
    return _error(text, "not_written", transient=False)


def closed(name: str) -> MemoryStoreBackendError:
    """Make the error for a call on a store that is closed."""
    return _error(f"the store on {name} is closed", "not_written", transient=False)
