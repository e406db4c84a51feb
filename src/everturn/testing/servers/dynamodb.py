"""A stand-in for DynamoDB: dynoxide (a binary, durable) or ministack (by pip, in memory). AWS itself is not needed.

ministack pins its own botocore, so it lives in an environment of its own: `python -m venv DIR && DIR/bin/pip install
ministack`, and EVERTURN_MINISTACK names its program. `make` does so for the tests of everturn.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Literal, TypeAlias

from everturn.testing.servers.binaries import LOOPBACK, ServerError, program
from everturn.testing.servers.server import Server, Supervisor

StandIn: TypeAlias = Literal["dynoxide", "ministack"]
_VARIABLES: dict[StandIn, str] = {"dynoxide": "EVERTURN_DYNOXIDE", "ministack": "EVERTURN_MINISTACK"}
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "everturn", "AWS_SECRET_ACCESS_KEY": "stand-in"}
"""Credentials that a stand-in takes. Any would do: neither looks at them."""


def take_credentials(options: Collection[str]) -> None:
    """Replace the credentials in this process, if a stand-in is among what it is given: nobody's own are to be sent."""
    if "dynamodb_endpoint" in options:
        os.environ |= CREDENTIALS


class DynamoDBServer(Server):
    """A stand-in for DynamoDB. `kind` says which: what a dynoxide acknowledged is there after a kill and a restart."""

    def __init__(self, supervisor: Supervisor, name: str, kind: StandIn, found: Path) -> None:
        super().__init__(supervisor, name)
        self.kind: StandIn = kind
        self._program = found

    @property
    def endpoint(self) -> str:
        """The address for clients of AWS, as a URL."""
        return f"http://{self.address}"

    @property
    def url(self) -> str:
        """The URL for stores: the table `everturn`, created when it is opened."""
        return self.url_of("everturn")

    def url_of(self, table: str, endpoint: str | None = None) -> str:
        """Make the URL of a table, which is created when it is opened; `endpoint` may be that of a proxy."""
        return f"dynamodb://{table}?region=us-east-1&endpoint={endpoint or self.endpoint}&create=true"

    @property
    def is_durable(self) -> bool:
        """Whether a kill loses nothing that was acknowledged."""
        return self.kind == "dynoxide"

    def _configure(self) -> None:
        """Nothing is written: all settings are arguments."""

    def _argv(self) -> list[str]:
        if self.kind == "dynoxide":
            database = self.directory / "dynamodb.db"
            where = ["--host", LOOPBACK, "--port", str(self.port)]
            return [str(self._program), *where, "--db-path", str(database)]
        settings = {
            "BIND_HOST": LOOPBACK,  # its default is all interfaces
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "dynamodb",
            "LOG_LEVEL": "WARNING",
            "TMPDIR": str(self.directory),
        }
        env = shutil.which("env") or "/usr/bin/env"
        return [env, *(f"{name}={value}" for name, value in settings.items()), str(self._program)]

    def _is_up(self) -> bool:
        connection = HTTPConnection(LOOPBACK, self.port, timeout=2)
        target = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"}
        signed = (
            "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=x"
        )
        try:
            connection.request(
                "POST", "/", b"{}", {**target, "Authorization": signed, "X-Amz-Date": "20260101T000000Z"}
            )
            return connection.getresponse().status < 500
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()


@contextmanager
def dynamodb_server(kind: StandIn | None = None) -> Iterator[DynamoDBServer]:
    """Run a stand-in for DynamoDB until the end of the block: dynoxide if it is there, else ministack.

        with dynamodb_server() as server:
            store = everturn.open(server.url)

    A client needs credentials: any will do, as those in CREDENTIALS. Raises ServerError if there is none to run.
    """
    kinds: tuple[StandIn, ...] = ("dynoxide", "ministack") if kind is None else (kind,)
    for number, each in enumerate(kinds):
        try:
            found = stand_in_program(each)
        except ServerError:
            if number == len(kinds) - 1:
                raise
        else:
            with Supervisor() as supervisor:
                server = DynamoDBServer(supervisor, each, each, found)
                server.start()
                yield server
            return


def stand_in_program(kind: StandIn) -> Path:
    """Find the program of a stand-in: by EVERTURN_DYNOXIDE or EVERTURN_MINISTACK, where `make` put it, or on PATH."""
    beside = Path(sys.prefix) / kind / "bin" / kind
    try:
        return program((kind,), beside, _VARIABLES[kind])
    except ServerError:
        if os.environ.get(_VARIABLES[kind]):
            raise
        how = "npm pack @dynoxide/linux-x64" if kind == "dynoxide" else "pip install ministack, in a venv of its own"
        raise ServerError(f"no {kind} found; get it by {how}, and let {_VARIABLES[kind]} name its program") from None
