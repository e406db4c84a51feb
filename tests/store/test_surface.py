"""The public surface, pinned: names, signatures, documentation."""

from __future__ import annotations

import ast
import inspect
import runpy
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import AsyncMemoryStore, MemoryStore
from everturn.store.operations import Operations

ROOT = Path(__file__).parents[2]

NAMES = [
    "LeaseLost",
    "LeaseHeld",
    "Lease",
    "EffectInDoubt",
    "Effect",
    "AsyncLease",
    "AsyncMemoryStore",
    "Change",
    "ChatMessage",
    "Compaction",
    "Context",
    "CopyProgress",
    "CopyReport",
    "CorruptEntry",
    "Diff",
    "ErasureReceipt",
    "Health",
    "HeldLease",
    "Hit",
    "InvalidInput",
    "KeyReused",
    "Match",
    "MemoryStore",
    "MemoryStoreBackendError",
    "MemoryStoreError",
    "Page",
    "Problem",
    "Receipt",
    "Record",
    "SchemaTooNew",
    "SessionInfo",
    "SessionNotFound",
    "SessionState",
    "Snapshot",
    "SnapshotNotFound",
    "Summary",
    "ToolCall",
    "Turn",
    "Unsupported",
    "VerifyReport",
    "VersionConflict",
    "copy",
    "copy_async",
    "from_client",
    "open",
    "open_async",
]

METHODS = {
    "add_messages": "(session_id, messages, *, key=None, expected_version=None, lease=None)",
    "append": "(session_id, entries, *, key=None, expected_version=None, lease=None)",
    "replace": "(session_id, entries, *, after=0, key=None, expected_version=None, lease=None)",
    "save_context": "(session_id, human, ai, *, key=None, expected_version=None, lease=None)",
    "load_memory": "(session_id)",
    "get_history": "(session_id, *, limit=None, before=None, after=None, at=None, heal=False, on_corrupt='raise')",
    "get_context": "(session_id, *, max_tokens=None, count_tokens=None, max_messages=None, max_bytes=None, at=None, "
    "heal=True)",
    "get_turn": "(session_id, key)",
    "add_tool_call": "(session_id, tool_call, *, key=None, expected_version=None, lease=None)",
    "get_tool_calls": "(session_id)",
    "add_summary": "(session_id, summary, *, key=None, expected_version=None, lease=None)",
    "get_lease": "(session_id)",
    "get_summaries": "(session_id)",
    "search_summaries": "(session_id, embedding, *, k=5)",
    "save_snapshot": "(session_id, label=None, *, key=None, expected_version=None, lease=None)",
    "list_snapshots": "(session_id)",
    "delete_snapshot": "(session_id, snapshot, *, key=None, expected_version=None, lease=None)",
    "rollback_to_snapshot": "(session_id, snapshot, *, key=None, expected_version=None, lease=None)",
    "rollback": "(session_id, to, *, key=None, expected_version=None, lease=None)",
    "undo": "(session_id, *, key=None, expected_version=None, lease=None)",
    "lease": "(session_id, *, seconds=30, wait=0, renew=False)",
    "begin_effect": "(session_id, key, request=None, *, repeats=0, expected_version=None, lease=None)",
    "finish_effect": "(session_id, key, result=None, *, attempt=0, note=None, expected_version=None, lease=None)",
    "fail_effect": "(session_id, key, error, *, attempt=0, note=None, expected_version=None, lease=None)",
    "get_effects": "(session_id)",
    "once": "(session_id, key, do, *, request=None, repeat_in_doubt=False, failures=(), lease=None)",
    "diff": "(session_id, a, b=None)",
    "fork": "(session_id, new_session_id, *, at=None, key=None, expected_version=None)",
    "trim": "(session_id, *, max_messages=None, max_tokens=None, count_tokens=None, keep_system=True, key=None, "
    "expected_version=None, lease=None)",
    "fold": "(session_id, summarize, *, max_tokens=None, count_tokens=None, max_messages=None, embed=None, key=None, "
    "expected_version=None, lease=None)",
    "clear": "(session_id, *, key=None, expected_version=None, lease=None)",
    "clear_all": "()",
    "erase": "(session_id, *, expected_version=None)",
    "erase_all": "(*, prefix='', where=None, changed_before=None, progress=None)",
    "health": "()",
    "state": "(session_id, *, at=None, kind=None, before=None, after=None)",
    "info": "(session_id)",
    "changes": "(session_id, limit=100)",
    "sessions": "(prefix='', *, where=None, limit=100, page=None, order=None)",
    "find": "(text, *, session_id=None, limit=50)",
    "set_facts": "(session_id, facts, *, key=None, expected_version=None, lease=None)",
    "set_ttl": "(session_id, seconds, *, key=None, expected_version=None, lease=None)",
    "verify": "(session_id=None)",
    "compact": "(session_id=None, *, drop_undo=False)",
    "close": "()",
}


def public_methods(face: type) -> dict[str, Any]:
    return {name: value for name, value in vars(face).items() if not name.startswith("_") and callable(value)}


def parameters(method: Any) -> str:
    """The signature without `self` and without annotations."""
    signature = inspect.signature(method)
    bare = [each.replace(annotation=each.empty) for each in list(signature.parameters.values())[1:]]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def test_the_public_names_are_these() -> None:
    assert sorted(everturn.__all__) == sorted(NAMES)
    assert list(everturn.__all__) == sorted(everturn.__all__)


def test_every_public_name_is_there() -> None:
    assert all(hasattr(everturn, name) for name in everturn.__all__)


@pytest.mark.parametrize("face", [MemoryStore, AsyncMemoryStore])
def test_a_face_has_these_methods(face: type) -> None:
    assert sorted(public_methods(face)) == sorted(METHODS)


@pytest.mark.parametrize("face", [MemoryStore, AsyncMemoryStore])
@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_takes_these_arguments(face: type, name: str) -> None:
    assert parameters(getattr(face, name)) == METHODS[name]


@pytest.mark.parametrize("face", [MemoryStore, AsyncMemoryStore])
def test_methods_are_written_out_for_editors_and_type_checkers(face: type) -> None:
    """What is made while the module is imported, they do not see."""
    body = ast.parse(inspect.getsource(face)).body[0].body  # type: ignore[attr-defined]
    written = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert set(METHODS) - written == set()


@pytest.mark.parametrize("module", ["", "testing/"])
def test_tools_that_do_not_run_the_package_find_its_names(module: str) -> None:
    """jedi leaves out what stands under a condition that is False by its text."""
    tree = ast.parse((ROOT / "src" / "everturn" / module / "__init__.py").read_text("utf-8"))
    (value,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and "TYPE_CHECKING" in ast.dump(node)]
    assert not isinstance(value, ast.Constant)


@pytest.mark.parametrize("face", [MemoryStore, AsyncMemoryStore])
@pytest.mark.parametrize("name", [name for name in METHODS if name != "lease"])
def test_a_method_has_the_signature_of_its_implementation(face: type, name: str) -> None:
    written, implemented = (inspect.signature(getattr(each, name), eval_str=True) for each in (face, Operations))
    assert written == implemented


def test_the_awaited_methods_are_made_from_the_blocking_ones() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "make_async_store.py"))
    present = tool["AWAITED"].read_text("utf-8")
    assert tool["made"](tool["BLOCKING"].read_text("utf-8"), present) == present, "run python tools/make_async_store.py"


def test_a_lease_is_taken_by_the_same_arguments_in_both_stores() -> None:
    """`lease` of an asynchronous store is no coroutine: what it returns is awaited, or entered by `async with`."""
    blocking, awaited = MemoryStore.lease, AsyncMemoryStore.lease
    assert str(inspect.signature(blocking)).replace("Lease", "AsyncLease") == str(inspect.signature(awaited))
    assert awaited.__doc__ is not None
    assert blocking.__doc__ == awaited.__doc__.replace("async with", "with").replace("await store.", "store.")


@pytest.mark.parametrize("name", [name for name in METHODS if name != "lease"])
def test_both_faces_have_the_same_signature_and_documentation(name: str) -> None:
    blocking, awaited = getattr(MemoryStore, name), getattr(AsyncMemoryStore, name)
    assert inspect.signature(blocking) == inspect.signature(awaited)
    assert blocking.__doc__ == awaited.__doc__.replace("await store.", "store.")
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)


def test_both_ways_to_open_take_the_same() -> None:
    ways = [inspect.signature(way).parameters for way in (everturn.open, everturn.open_async)]
    assert ways[0] == ways[1]


def test_both_ways_to_copy_take_the_same() -> None:
    ways = [str(inspect.signature(way)).replace("Async", "") for way in (everturn.copy, everturn.copy_async)]
    assert ways[0] == ways[1]
    assert list(inspect.signature(everturn.copy).parameters) == ["source", "target", "sessions", "progress"]


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_says_what_it_is(name: str) -> None:
    value = getattr(everturn, name)
    assert value.__doc__
    assert value.__module__.startswith("everturn")


def test_values_are_frozen() -> None:
    for value in (everturn.ChatMessage("user", "x"), everturn.Receipt("a", "l", 1), everturn.ToolCall("f", {})):
        with pytest.raises(AttributeError):
            value.version = 2


def test_every_change_takes_a_key_and_an_expected_version() -> None:
    changes = [name for name, signature in METHODS.items() if "key=None" in signature]
    assert len(changes) == 17
    assert all("key=None, expected_version=None" in METHODS[name] for name in changes)


def test_every_change_can_name_a_lease() -> None:
    """But a fork, which begins another session, of which nobody holds anything; and an erasure, which ends leases."""
    conditional = [name for name, signature in METHODS.items() if "expected_version=None" in signature]
    changes = [name for name in conditional if name not in ("fork", "erase")]
    assert len(changes) == 19
    assert all(METHODS[name].endswith("lease=None)") for name in changes)


def test_a_store_closes_itself() -> None:
    with everturn.open("sqlite://") as store:
        store.add_messages("a", [everturn.ChatMessage("user", "x")])
    with pytest.raises(everturn.MemoryStoreBackendError):
        store.get_history("a")
