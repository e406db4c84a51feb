"""DynamoDB: the backend of the scheme `dynamodb`.

    __init__.py      opens a backend: by URL and options
    backend.py       DynamoDBBackend: every operation, written once for blocking and asynchronous stores
    change.py        a change: planned on the head that is known, written in one conditional transaction
    known_heads.py   heads that this process saw last
    local_turns.py   changes of one process to a session, one after the other
    head_queue.py    the queue of changes that lost to other processes for a while
    new_state.py     the writes of a planned change; plan_facts.py answers the plan's questions
    staged_items.py  items of a large turn, written before the transaction that shows them
    reads.py         reads of a session; log_reader.py its items; visibility.py tells what is lost from what comes
    listing.py       pages of sessions, and text search; verify.py checks all that is stored
    fork_session.py  forks; transfer.py sessions in and out, for copies and exports
    erase.py         erasures; compaction.py reclaims what nothing needs
    stored_form.py   names of keys, and items to values and back; entry_blocks.py entries that share an item
    table.py         items, ranges, batches and transactions; create_table.py makes the table
    client.py        sends requests in threads, within a deadline; errors.py errors of botocore as ours
    doctor.py        settings of the table; permissions.py the least policy

botocore is imported when a store is opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from everturn.backends._shared.options import namespace, switch, whole_number
from everturn.backends._shared.read_only import refuse_changes
from everturn.core.masking import masked
from everturn.errors import InvalidInput

if TYPE_CHECKING:
    from everturn.backends.dynamodb.backend import DynamoDBBackend

CONNECTIONS = 32
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")


def _text(path: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value:
            raise InvalidInput(f"is a text, not {value!r}", path=path)
        return value

    return read


def _endpoint(value: object) -> str:
    if not isinstance(value, str) or not value.startswith(("http://", "https://")):
        shown = masked(str(value))
        raise InvalidInput(f"is a URL that begins with https:// or http://, not {shown!r}", path="endpoint")
    if "@" in value:  # botocore's errors, which ours are raised from, would show it
        advice = "credentials come from the environment, from ~/.aws, or from the role of the machine"
        raise InvalidInput(f"has a user or a password in it; {advice}", path="endpoint")
    return value


OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "namespace": namespace,
    "region": _text("region"),
    "endpoint": _endpoint,
    "create": switch("create"),
    "max_connections": whole_number("max_connections", 1),
    "read_only": switch("read_only"),
}


def load_driver() -> None:
    """Import botocore, and our modules that need it."""
    from everturn.backends.dynamodb import backend, create_table  # noqa: F401 - imported is all it takes
    from everturn.backends.dynamodb.client import load_description

    load_description()


def open(url: str, options: Mapping[str, Any], deadline: float) -> DynamoDBBackend:  # noqa: A001 - the protocol's name
    """Open the table that a URL names. Raises InvalidInput, SchemaTooNew, MemoryStoreBackendError.

    With `create`, a table that is not there is created.
    """
    from everturn.backend import drive

    return drive(_opened(url, options, deadline, blocking=True))


async def open_async(url: str, options: Mapping[str, Any], deadline: float) -> DynamoDBBackend:
    """Open as `open` does, for an event loop."""
    return await _opened(url, options, deadline, blocking=False)


async def _opened(url: str, options: Mapping[str, Any], deadline: float, *, blocking: bool) -> DynamoDBBackend:
    from everturn.backends.dynamodb import create_table
    from everturn.backends.dynamodb.backend import DynamoDBBackend
    from everturn.backends.dynamodb.client import DynamoDBClient, TableAddress

    table = url.partition("://")[2].rstrip("/")
    if not _TABLE.fullmatch(table):
        raise InvalidInput("names no table; write dynamodb://TABLE?region=eu-central-1", path="url")
    place = (options.get("region"), options.get("endpoint"), options.get("max_connections", CONNECTIONS))
    client = DynamoDBClient(TableAddress(table, *place), blocking=blocking)
    read_only = options.get("read_only", False)
    try:
        await create_table.prepare(client, deadline, create=options.get("create", False), read_only=read_only)
    except BaseException:
        await client.close()
        raise
    backend = DynamoDBBackend(client, options.get("namespace", ""), read_only=read_only)
    return refuse_changes(backend, f"the store on {client.name}") if read_only else backend
