"""snapshot_db under xdist: which worker gets which tests, and how a worker ends a run with a message.

Uses names that are public in xdist, or that it cannot do without; xdist itself is never imported.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from everturn.testing.golden.errors import GoldenError

_NAME = "everturn_snapshot_db"


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def has_groups(config: pytest.Config) -> bool:
    """Whether this worker is one of --dist loadgroup."""
    return bool(getattr(config.option, "loadgroup", False))


def ask_for_groups(items: list[pytest.Item], groups: list[list[str]]) -> None:
    """Mark each group of tests for one worker, before xdist reads marks. A group that a user named keeps its name."""
    by_id = {item.nodeid: item for item in items}
    for number, group in enumerate(groups):
        named = [name for nodeid in group for name in _named(by_id[nodeid])]
        name = named[0] if named else f"snapshot_db-{number}"
        for nodeid in group:
            if not _named(by_id[nodeid]):
                by_id[nodeid].add_marker(pytest.mark.xdist_group(name))


def put_groups_into_ids(items: list[pytest.Item]) -> None:
    """Append groups to test ids, as xdist does: its scheduler knows them only by the end of a test's id.

    xdist 3.8 sets an attribute for this that pytest 9.2 does not look at any more, so there its groups have no effect.
    """
    for item in items:
        names, node_id = _named(item), getattr(item, "_id", None)
        if names and node_id is not None and not group_of(item.nodeid):
            item._id = type(node_id).parse(f"{item.nodeid}@{'_'.join(sorted(set(names)))}")  # noqa: SLF001


def group_of(nodeid: str) -> str:
    """Find the group that xdist's scheduler sees in an id; "" if there is none."""
    head, _, group = nodeid.rpartition("@")
    return group if head and "]" not in group else ""


def refuse_split_groups(groups: list[list[str]]) -> None:
    """Raise GoldenError if tests that must run in one process would not."""
    for group in groups:
        seen = {group_of(nodeid) for nodeid in group}
        if len(seen) > 1 or "" in seen:
            raise GoldenError(
                f"these tests start from what others of them write, {', '.join(group[:5])}; but xdist would give them "
                "to several workers. To update them add --dist loadgroup (and if they have an xdist_group, let it be "
                "the same), or run without -n"
            )


def _named(item: pytest.Item) -> list[str]:
    """List the groups that marks put a test into, as xdist reads them."""
    marks = item.iter_markers("xdist_group")
    return [str(mark.args[0] if mark.args else mark.kwargs.get("name", "default")) for mark in marks]


# --- between a worker and its controller -----------------------------------------------------------------------------


def send(config: pytest.Config, sent: dict[str, Any]) -> None:
    """Send this from a worker to the controller."""
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output[_NAME] = sent


def received(node: Any) -> dict[str, Any] | None:
    """Get, in the controller, what a worker that has ended sent; None if nothing."""
    sent: dict[str, Any] | None = getattr(node, "workeroutput", {}).get(_NAME)
    return sent


class Refusals:
    """A folder in which a worker leaves the reason why a run cannot start; the controller reads it before any test.

    A worker cannot just exit: the controller may be sending it tests, which xdist does not expect.
    """

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def send_folder(self, node: Any) -> None:
        """Tell a worker, from the controller, where the folder is."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="everturn-refusals-")
        node.workerinput[_NAME] = self._folder.name

    def refuse(self, config: pytest.Config, message: str) -> None:
        """End the run with a usage message; in a worker, leave it to the controller."""
        folder = getattr(config, "workerinput", {}).get(_NAME)
        if folder is None:
            raise pytest.UsageError(message)
        (Path(folder) / "usage").write_text(message, "utf-8")

    def check(self) -> None:
        """Raise UsageError, in the controller, if a worker has refused."""
        if self._folder is not None:
            usage = Path(self._folder.name) / "usage"
            if usage.exists():
                raise pytest.UsageError(usage.read_text("utf-8"))

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
