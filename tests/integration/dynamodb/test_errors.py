"""Errors of DynamoDB and of the way to it: what each says about a change, and whether it is sent again.

Answers are those of a scripted server, read by botocore; failures of the network are real.
"""

from __future__ import annotations

import inspect
import socket
import ssl
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import trustme
from botocore import exceptions

import everturn
from everturn import InvalidInput, MemoryStoreBackendError
from everturn.backend import drive
from everturn.backends.dynamodb import client as client_module
from everturn.backends.dynamodb import errors
from everturn.backends.dynamodb.client import DynamoDBClient, TableAddress
from everturn.backends.dynamodb.permissions import OPERATIONS
from everturn.testing.servers import free_port
from tests.integration.dynamodb.scripted_server import (
    ScriptedServer,
    Treatment,
    answer,
    cancelled,
    error,
    hang_up,
    page,
    raw,
    reset,
    scripted,
    silent,
)

WRITE: dict[str, Any] = {
    "TransactItems": [{"Put": {"TableName": "everturn", "Item": {"pk": {"S": "a"}, "sk": {"S": "b"}}}}]
}
READ: dict[str, Any] = {"TableName": "everturn", "Key": {"pk": {"S": "a"}, "sk": {"S": "b"}}}
NOT_WRITTEN, UNKNOWN = "not_written", "unknown"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No configuration but that of the test. Returns the path of the configuration file, which is not there."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "everturn")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path / "config"


def failure(client: DynamoDBClient, *, writes: bool = True, timeout: float = 10.0) -> Any:
    """Send one request, a transaction or a read. Return the error that it ended in."""
    operation, parameters = ("transact_write_items", WRITE) if writes else ("get_item", READ)
    try:
        drive(client.send(operation, parameters, time.monotonic() + timeout, writes=writes))
    except (MemoryStoreBackendError, errors.ConditionNotMet) as exc:
        return exc
    raise AssertionError("the request was answered")


def sent(endpoint: str | None, *, timeout: float = 10.0, region: str | None = "us-east-1") -> Any:
    """Send a transaction by a client of its own. Return the error that it ended in."""
    client = DynamoDBClient(TableAddress("everturn", region, endpoint, 1), blocking=True)
    try:
        return failure(client, timeout=timeout)
    finally:
        drive(client.close())


class Line:
    """A client and the scripted server that it talks to. They serve all tests: a client takes long to make."""

    def __init__(self, server: ScriptedServer, client: DynamoDBClient) -> None:
        self.server = server
        self.client = client

    def told(self, treatment: Treatment, *, writes: bool = True) -> Any:
        """Send a request that is treated so. Return the error that it ended in."""
        self.server.script[:], self.server.requests[:] = [treatment], []
        told = failure(self.client, writes=writes)
        assert len(self.server.requests) == 1, "botocore sent it again by itself"
        assert "a-secret" not in str(told)
        return told

    def judged(self, treatment: Treatment, *, writes: bool = True) -> tuple[str, bool]:
        """Return what became of the change, and whether it is sent again."""
        told = self.told(treatment, writes=writes)
        assert isinstance(told, MemoryStoreBackendError), told
        return told.outcome, told.transient


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    with pytest.MonkeyPatch.context() as patch, scripted(hang_up) as server:
        patch.setenv("AWS_ACCESS_KEY_ID", "everturn")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-test")
        client = DynamoDBClient(TableAddress("everturn", "us-east-1", f"http://{server.address}", 1), blocking=True)
        yield Line(server, client)
        drive(client.close())


# --- answers of DynamoDB ----------------------------------------------------------------------------------------------

ANSWERS = {
    # code: status, outcome of a change, sent again
    "ProvisionedThroughputExceededException": (400, NOT_WRITTEN, True),
    "ThrottlingException": (400, NOT_WRITTEN, True),
    "Throttling": (400, NOT_WRITTEN, True),
    "RequestLimitExceeded": (400, NOT_WRITTEN, True),
    "LimitExceededException": (400, NOT_WRITTEN, True),
    "TransactionConflictException": (400, NOT_WRITTEN, True),
    "TransactionInProgressException": (400, UNKNOWN, True),
    "IdempotentParameterMismatchException": (400, NOT_WRITTEN, False),
    "ReplicatedWriteConflictException": (400, NOT_WRITTEN, True),
    "InternalServerError": (500, UNKNOWN, True),
    "InternalFailure": (500, UNKNOWN, True),
    "ServiceUnavailable": (503, UNKNOWN, True),
    "ServiceUnavailableException": (503, UNKNOWN, True),
    "RequestTimeout": (400, UNKNOWN, True),
    "RequestTimeoutException": (408, UNKNOWN, True),
    "ItemCollectionSizeLimitExceededException": (400, NOT_WRITTEN, False),
    "ValidationException": (400, NOT_WRITTEN, False),
    "SerializationException": (400, NOT_WRITTEN, False),
    "ResourceNotFoundException": (400, NOT_WRITTEN, False),
    "TableNotFoundException": (400, NOT_WRITTEN, False),
    "ResourceInUseException": (400, NOT_WRITTEN, True),
    "AccessDeniedException": (400, NOT_WRITTEN, False),
    "AccessDenied": (403, NOT_WRITTEN, False),
    "ExpiredTokenException": (400, NOT_WRITTEN, False),
    "ExpiredToken": (403, NOT_WRITTEN, False),
    "UnrecognizedClientException": (400, NOT_WRITTEN, False),
    "InvalidClientTokenId": (403, NOT_WRITTEN, False),
    "OptInRequired": (403, NOT_WRITTEN, False),
    "InvalidSignatureException": (400, NOT_WRITTEN, False),
    "SignatureDoesNotMatch": (403, NOT_WRITTEN, False),
    "RequestExpired": (400, NOT_WRITTEN, False),
    "IncompleteSignature": (400, NOT_WRITTEN, False),
    "IncompleteSignatureException": (400, NOT_WRITTEN, False),
    "MissingAuthenticationToken": (403, NOT_WRITTEN, False),
    "MissingAuthenticationTokenException": (400, NOT_WRITTEN, False),
}


@pytest.mark.parametrize("code", ANSWERS)
def test_each_answer_says_what_became_of_a_change(line: Line, code: str) -> None:
    status, outcome, is_sent_again = ANSWERS[code]
    assert line.judged(error(code, status)) == (outcome, is_sent_again)


def test_every_code_of_the_table_is_tried_here() -> None:
    assert set(errors.CODES) == set(ANSWERS)


def test_every_error_that_the_service_declares_for_our_requests_is_in_the_table() -> None:
    service = botocore.session.get_session().get_service_model("dynamodb")
    declared = {shape.name for name in OPERATIONS for shape in service.operation_model(name).error_shapes}
    conditions = {"ConditionalCheckFailedException", "TransactionCanceledException"}
    assert declared - conditions <= set(errors.CODES)
    assert conditions <= declared


REASONS = {
    ("TransactionConflict",): (NOT_WRITTEN, True),
    ("None", "TransactionConflict"): (NOT_WRITTEN, True),
    ("ProvisionedThroughputExceeded",): (NOT_WRITTEN, True),
    ("ThrottlingError",): (NOT_WRITTEN, True),
    ("TransactionConflict", "ThrottlingError"): (NOT_WRITTEN, True),
    ("ItemCollectionSizeLimitExceeded",): (NOT_WRITTEN, False),
    ("ValidationError",): (NOT_WRITTEN, False),
    ("TransactionConflict", "ValidationError"): (NOT_WRITTEN, False),
    ("AccessDenied",): (NOT_WRITTEN, False),
    ("DuplicateItem",): (NOT_WRITTEN, False),
    ("NobodyKnowsThis",): (NOT_WRITTEN, False),
    (): (NOT_WRITTEN, False),
}


@pytest.mark.parametrize("reasons", REASONS, ids=lambda reasons: "+".join(reasons) or "no-reasons")
def test_nothing_of_a_cancelled_transaction_was_written(line: Line, reasons: tuple[str, ...]) -> None:
    assert line.judged(cancelled(*reasons)) == REASONS[reasons]


def test_every_reason_of_the_table_is_tried_here() -> None:
    assert set(errors.REASONS) <= {reason for reasons in REASONS for reason in reasons}


def test_a_transaction_that_is_throttled_is_not_said_to_be_contended(line: Line) -> None:
    assert "no capacity" in str(line.told(cancelled("TransactionConflict", "ThrottlingError")))


def test_a_condition_that_was_not_met_brings_the_stored_item(line: Line) -> None:
    stored = {"pk": {"S": "a"}, "tag": {"B": "eA=="}}
    told = line.told(cancelled("None", "ConditionalCheckFailed", ConditionalCheckFailed=stored))
    assert isinstance(told, errors.ConditionNotMet)
    assert told.items == [errors.UNASKED, {"pk": {"S": "a"}, "tag": {"B": b"x"}}]
    assert told.all_checked


def test_an_item_that_another_transaction_held_was_not_compared(line: Line) -> None:
    told = line.told(cancelled("TransactionConflict", "ConditionalCheckFailed"))
    assert isinstance(told, errors.ConditionNotMet)
    assert (told.items, told.all_checked) == ([errors.UNASKED, None], False)


@pytest.mark.parametrize("code", ["InternalServerError", "TransactionInProgressException"])
def test_a_read_that_failed_has_changed_nothing(line: Line, code: str) -> None:
    assert line.judged(error(code, 500), writes=False) == (NOT_WRITTEN, True)


# --- answers of something in between ----------------------------------------------------------------------------------

HTML = b"<html>not DynamoDB</html>"
IN_BETWEEN = {
    "a code that nobody knows": (error("BrandNewException"), NOT_WRITTEN, False),
    "a code that nobody knows, of the server's": (error("BrandNewException", 500), UNKNOWN, True),
    "500": (page(500, HTML), UNKNOWN, True),
    "502": (page(502, HTML), UNKNOWN, True),
    "503 without a body": (page(503, b""), UNKNOWN, True),
    "504": (page(504, HTML), UNKNOWN, True),
    "403 of a proxy": (page(403, HTML), UNKNOWN, False),
    "404": (page(404, HTML), UNKNOWN, False),
    "408": (page(408, HTML), UNKNOWN, True),
    "413": (page(413, HTML), NOT_WRITTEN, False),
    "429": (page(429, HTML), UNKNOWN, True),
    "200 with another body": (page(200, HTML), UNKNOWN, True),
    "200 with half a JSON": (page(200, b'{"Items": [', "application/x-amz-json-1.0"), UNKNOWN, True),
    "200 with another JSON": (page(200, b'{"blocked": true}', "application/json"), UNKNOWN, True),
    "200 with a checksum that does not fit": (
        page(200, b'{"Item": {}}', "application/x-amz-json-1.0", x_amz_crc32="1"),
        *(UNKNOWN, True),
    ),
    "no HTTP": (raw(b"220 mail.example.org ESMTP\r\n"), UNKNOWN, True),
    "half a body": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"), UNKNOWN, True),
    "half a body of DynamoDB": (
        raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: 500\r\n\r\n{"Item": {}}'),
        *(UNKNOWN, True),
    ),
    "half a head": (raw(b"HTTP/1.1 200 OK\r\nContent-Le"), UNKNOWN, True),
    "no answer": (hang_up, UNKNOWN, True),
    "reset": (reset, UNKNOWN, True),
}


@pytest.mark.parametrize("answered", IN_BETWEEN)
def test_an_answer_that_is_not_from_dynamodb_leaves_a_doubt(line: Line, answered: str) -> None:
    treatment, outcome, is_sent_again = IN_BETWEEN[answered]
    assert line.judged(treatment) == (outcome, is_sent_again)


# --- the network ------------------------------------------------------------------------------------------------------


def outcome_of(told: Any) -> tuple[str, bool, str]:
    """Return the outcome, whether it is sent again, and botocore's exception."""
    assert isinstance(told, MemoryStoreBackendError), told
    return told.outcome, told.transient, type(told.__cause__).__name__


def test_a_port_where_nobody_listens() -> None:
    told = sent(f"http://127.0.0.1:{free_port()}")
    assert outcome_of(told) == (NOT_WRITTEN, True, "EndpointConnectionError")


def test_a_host_that_takes_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "CONNECT_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(4)]  # they fill its queue
        for line in waiting:
            line.setblocking(False)
            line.connect_ex(full.getsockname())
        told = sent(f"http://127.0.0.1:{full.getsockname()[1]}")
        for line in waiting:
            line.close()
    assert outcome_of(told) == (NOT_WRITTEN, True, "ConnectTimeoutError")


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "READ_TIMEOUT", 0.2)
    with scripted(silent) as server:
        assert outcome_of(sent(f"http://{server.address}")) == (UNKNOWN, True, "ReadTimeoutError")


def test_a_deadline_that_passes_while_the_server_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "READ_TIMEOUT", 1.0)
    with scripted(silent) as server:
        told = sent(f"http://{server.address}", timeout=0.2)
    assert (told.outcome, told.transient) == (UNKNOWN, False)


def test_a_connection_that_ends_without_an_answer() -> None:
    with scripted(hang_up) as server:
        assert outcome_of(sent(f"http://{server.address}")) == (UNKNOWN, True, "ConnectionClosedError")


def test_a_proxy_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    told = sent("http://dynamodb.example.org")
    assert outcome_of(told) == (NOT_WRITTEN, True, "ProxyConnectionError")


CA = trustme.CA()


@pytest.fixture
def secure() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    CA.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))


def test_a_certificate_that_nobody_trusts(secure: ssl.SSLContext) -> None:
    with scripted(answer(200, {}), tls=secure) as server:
        told = sent(f"https://{server.address}")
        assert server.requests == []
    assert outcome_of(told) == (NOT_WRITTEN, False, "SSLError")


def test_a_port_without_tls() -> None:
    with scripted(hang_up) as server:
        server.greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        assert outcome_of(sent(f"https://{server.address}")) == (NOT_WRITTEN, False, "SSLError")


@pytest.mark.usefixtures("trusted")
def test_a_secure_connection_that_is_cut_after_the_request_was_sent_leaves_a_doubt(secure: ssl.SSLContext) -> None:
    """OpenSSL's error is of the same kind as that of a handshake."""
    with scripted(hang_up, tls=secure) as server:
        told = sent(f"https://{server.address}")
        assert len(server.requests) == 1
    assert outcome_of(told)[:2] == (UNKNOWN, True)


# --- requests that could not be made ----------------------------------------------------------------------------------

NOWHERE = "http://127.0.0.1:9"


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert outcome_of(sent(NOWHERE)) == (NOT_WRITTEN, False, "NoCredentialsError")


def test_half_of_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert outcome_of(sent(NOWHERE)) == (NOT_WRITTEN, False, "PartialCredentialsError")


def test_a_program_that_fails_to_give_credentials(monkeypatch: pytest.MonkeyPatch, environment: Path) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    environment.write_text("[default]\ncredential_process = false\n")
    assert outcome_of(sent(NOWHERE)) == (NOT_WRITTEN, True, "CredentialRetrievalError")


def test_a_profile_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert outcome_of(sent(NOWHERE)) == (NOT_WRITTEN, False, "ProfileNotFound")


def test_no_region() -> None:
    told = sent(None, region=None)
    assert outcome_of(told) == (NOT_WRITTEN, False, "NoRegionError")


@pytest.mark.parametrize(
    ("code", "status", "is_sent_again"), [("AccessDenied", 403, False), ("Throttling", 400, True), ("Oops", 500, True)]
)
def test_credentials_that_another_service_refuses(
    monkeypatch: pytest.MonkeyPatch, environment: Path, code: str, status: int, is_sent_again: bool
) -> None:
    """The request for them failed, so that ours was never sent."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    environment.write_text(
        "[default]\nrole_arn = arn:aws:iam::111122223333:role/worker\nsource_profile = base\nmax_attempts = 1\n"
        "[profile base]\naws_access_key_id = x\naws_secret_access_key = y\n"
    )
    body = f"<ErrorResponse><Error><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"
    with scripted(page(status, body.encode(), "text/xml")) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{server.address}")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        told = sent(NOWHERE)
        assert b"AssumeRole" in server.requests[0]
    assert outcome_of(told) == (NOT_WRITTEN, is_sent_again, "ClientError")


def test_parameters_that_botocore_refuses_are_not_in_the_error() -> None:
    client = DynamoDBClient(TableAddress("everturn", "us-east-1", NOWHERE, 1), blocking=True)
    wrong = {"TableName": "everturn", "Key": {"pk": "the words of the customer"}}
    with pytest.raises(MemoryStoreBackendError) as told:
        drive(client.send("delete_item", wrong, time.monotonic() + 5, writes=True))
    drive(client.close())
    assert outcome_of(told.value) == (NOT_WRITTEN, False, "ParamValidationError")
    assert "words" not in str(told.value)


def test_an_exception_of_botocore_is_not_written_only_if_the_table_says_so() -> None:
    """Whatever it is that a later botocore raises, a change is never said to be not written for no reason."""
    kinds = [kind for kind in vars(exceptions).values() if inspect.isclass(kind)]
    kinds = [kind for kind in kinds if issubclass(kind, exceptions.BotoCoreError)]
    assert len(kinds) > 80
    for kind in kinds:
        exc = kind.__new__(kind)
        exc.kwargs = {}
        listed = [errors.RAISED[parent] for parent in kind.__mro__ if parent in errors.RAISED]
        told = errors.from_driver(exc, "dynamodb://everturn", writes=True)
        assert isinstance(told, MemoryStoreBackendError)
        expected = (listed[0].outcome, listed[0].transient) if listed else (UNKNOWN, kind is exceptions.SSLError)
        assert (told.outcome, told.transient) == expected, kind


@pytest.mark.parametrize(
    "endpoint", ["ftp://us:pass-word@h", "http://us:pass-word@127.0.0.1:9", "https://u s:pass-word@h"]
)
def test_a_password_in_an_endpoint_is_refused_and_not_shown(endpoint: str) -> None:
    """botocore shows the endpoint in its errors, and a traceback shows these."""
    with pytest.raises(InvalidInput, match="endpoint") as caught:
        everturn.open(f"dynamodb://everturn?region=us-east-1&endpoint={endpoint}")
    assert "pass-word" not in "".join(traceback.format_exception(caught.value))


def test_a_request_that_its_store_was_closed_under_makes_no_driver(url: str) -> None:
    """Nobody would close it."""
    store = everturn.open(url)
    opened = store._operations.backend.client
    store.close()
    with pytest.raises(MemoryStoreBackendError, match="is closed"):
        opened._run("get_item", {})
    assert opened._driver is None
