"""Histories are written so that nothing acknowledged is lost, and read back as they were written."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from everturn import InvalidInput, MemoryStoreBackendError, VersionConflict
from everturn.testing.history import BadHistory, Recorder, judge, load, save
from everturn.testing.results import Event


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w.jsonl"


def ends(path: Path) -> list[str]:
    return [event.type for event in load(path) if event.type != "invoke"]


def test_a_call_is_two_events(path: Path) -> None:
    clock = iter([10, 20, 30, 40])
    with Recorder(path, "w", clock=clock.__next__) as recorder:
        with recorder.call("append", "s", values=["a", "b"], key="k"):
            pass
        with recorder.call("read", "s") as read:
            read.saw(["a", "b"])
    assert load(path) == [
        Event("invoke", "w", 1, 10, session="s", f="append", values=("a", "b"), key="k"),
        Event("ok", "w", 1, 20),
        Event("invoke", "w", 2, 30, session="s", f="read"),
        Event("ok", "w", 2, 40, values=("a", "b")),
    ]


def test_the_clock_of_a_worker_never_stands_still(path: Path) -> None:
    with Recorder(path, "w", clock=lambda: 7) as recorder, recorder.call("clear", "s"):
        pass
    assert [event.at for event in load(path)] == [7, 8]


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ValueError("no idea"), "info"),
        (KeyboardInterrupt(), "info"),
        (asyncio.CancelledError(), "info"),
        (MemoryStoreBackendError("late", outcome="unknown"), "info"),
        (MemoryStoreBackendError("down", outcome="not_written"), "fail"),
        (VersionConflict("moved", session_id="s", expected=1, actual=2), "fail"),
        (InvalidInput("a set", path="messages[0]"), "fail"),
    ],
    ids=repr,
)
def test_an_error_leaves_it_open_unless_it_says_that_nothing_was_written(
    path: Path, error: BaseException, end: str
) -> None:
    with pytest.raises(type(error)), Recorder(path, "w") as recorder, recorder.call("append", "s", values=["a"]):
        raise error
    assert ends(path) == [end]
    assert type(error).__name__ in (load(path)[-1].error or "")


def test_an_awaited_call_is_recorded_around_the_await(path: Path) -> None:
    async def write() -> None:
        with Recorder(path, "w") as recorder, recorder.call("append", "s", values=["a"]):
            await asyncio.sleep(0)

    asyncio.run(write())
    assert ends(path) == ["ok"]


def test_a_snapshot_is_known_by_the_name_the_store_gave_it(path: Path) -> None:
    with Recorder(path, "w") as recorder:
        with recorder.call("snapshot", "s") as call:
            call.named(17)
        with recorder.call("rollback", "s", snapshot="17"):
            pass
    assert [event.snapshot for event in load(path)] == [None, "17", "17", None]


def test_what_json_cannot_carry_does_not_stop_the_recorder(path: Path) -> None:
    with Recorder(path, "w") as recorder, recorder.call("read", "s") as read:
        read.saw(["half \ud800 a pair"])
    assert load(path)[-1].values == ("half \\ud800 a pair",)


_WRITER = """
import sys
from everturn.testing.history import Recorder
recorder = Recorder(sys.argv[1], "w")
number = 0
while True:
    number += 1
    with recorder.call("append", "s", values=[f"m{number}"]):
        pass
    print(number, flush=True)
"""


def test_a_kill_loses_no_acknowledgement(path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 200:
            break
    os.kill(child.pid, signal.SIGKILL)
    told = [200, *map(int, child.stdout.read().split())]
    child.stdout.close()
    child.wait()
    acknowledged = {event.op for event in load(path) if event.type == "ok"}
    assert acknowledged >= set(range(1, max(told) + 1))


def test_a_torn_last_line_is_left_out(path: Path) -> None:
    events = [Event("invoke", "w", 1, 1, session="s", f="clear"), Event("ok", "w", 1, 2)]
    save(events, path)
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        expected = whole[:cut].count(b"}")  # a line without its line end is whole, too
        assert load(path) == events[:expected]


def test_a_line_in_the_middle_that_is_no_event_is_refused(path: Path) -> None:
    path.write_text('{"type": "invo\n{"type": "ok", "worker": "w", "op": 1, "at": 2}\n')
    with pytest.raises(BadHistory, match=r"w\.jsonl:1: no event"):
        load(path)


def test_a_folder_is_one_history_a_file_for_each_process(tmp_path: Path) -> None:
    for worker in ("a", "b"):
        with Recorder(tmp_path / f"{worker}.jsonl", worker) as recorder, recorder.call("append", "s", values=[worker]):
            pass
    with Recorder(tmp_path / "c.jsonl", "c") as recorder, recorder.call("read", "s") as read:
        read.saw(["a", "b"])
    assert judge(load(tmp_path)).counts == {}
    with pytest.raises(BadHistory, match=r"without a \*\.jsonl file"):
        load(tmp_path / "..")


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([Event("ok", "w", 1, 5)], "has not begun"),
        ([Event("invoke", "w", 1, 5, session="s", f="clear")] * 2, "begins twice"),
        ([Event("invoke", "w", 1, 5, session="s")], "f is ''"),
        (
            [Event("invoke", "w", 1, 5, session="s", f="clear"), Event("ok", "w", 1, 6), Event("ok", "w", 1, 7)],
            "ends twice",
        ),
        ([Event("invoke", "w", 1, 5, session="s", f="clear"), Event("ok", "w", 1, 4)], "one monotonic clock"),
        ([Event("invoke", "w", 1, 5, session="s", f="read"), Event("ok", "w", 1, 6)], "needs `values`"),
        (
            [Event("invoke", "w", number, 5, session="s", f="append", values=("a",)) for number in (1, 2)],
            "only a retry with the same key",
        ),
        ([Event("invoke", "w", 1, 5, session="s", f="append", values=("a", "a"))], "'a' is written twice"),
        (
            [
                Event("invoke", "w", 1, 5, session="s", f="append", values=("a",), key="k"),
                Event("invoke", "w", 2, 5, session="s", f="append", values=("a", "b"), key="k"),
            ],
            "only a retry with the same key",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_history_is_refused_with_the_reason(events: list[Event], message: str) -> None:
    with pytest.raises(BadHistory, match=message):
        judge(events)
