"""Stores under a framework: everturn's adapter, and beside it the store that the framework brings for the same backend.

Both are driven through the framework's own interface and its own messages, so that the comparison is of the stores. A
place is a directory (SQLite) or the URL of a server. One module a framework.
"""


def asyncpg(url: str) -> str:
    """A PostgreSQL URL as SQLAlchemy wants it, with the driver it awaits."""
    return f"postgresql+asyncpg://{url.partition('://')[2]}"
