"""The command `init`: creates the table, schema or file of a store."""

from __future__ import annotations

from everturn.cli.arguments import URL, as_url, opened
from everturn.cli.output import clean, console
from everturn.core.masking import masked_url


def init(url: URL) -> None:
    """Create the table, schema or file of a store.

    DynamoDB: a table on demand, with its TTL attribute; a worker never creates one unless its URL says create=true.
    PostgreSQL: the schema. SQLite: the file. One that is there is left as it is, and brought up to date. It needs more
    permissions than a worker does. The table for CloudFormation and Terraform: everturn docs storage-dynamodb.

    \b
    Examples:
      everturn init "dynamodb://everturn?region=eu-central-1"
      everturn init postgresql://localhost/agents
    """
    given = url = as_url(url)
    if url.startswith("dynamodb:") and "create=" not in url:
        url += f"{'&' if '?' in url else '?'}create=true"
    with opened(url, create=True):
        pass
    name = clean(masked_url(given))
    console().print(f"ready: {name}", soft_wrap=True)
    console().print(f"Check its settings: everturn doctor {name}", soft_wrap=True)
