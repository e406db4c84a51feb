"""A history: what many workers asked of a memory store and what it answered, recorded, saved and judged.

A history is events, one JSON object per line (`everturn.testing.results.Event`). Each call is two of them: an
*invoke* written before the call, and *ok*, *fail* or *info* written after it. A call whose end is missing (its
process was killed) counts as *info*.

    type      "invoke", then one of
              "ok"    the store acknowledged it
              "fail"  the store said that nothing was written (0 copies)
              "info"  it raised, and may have happened or not (0 or 1 copy, never a part)
    worker    who called; op, its number among that worker's calls. The two together name the call
    at        nanoseconds of one monotonic clock, shared by all processes of the machine
    session   (invoke) the session it is about
    f         (invoke) append, read, replace, trim, clear, snapshot, rollback, undo, erase
    values    (invoke of append and replace; ok of read) ids of messages, in order. An id is written by one call only,
              or by calls that share a `key`. The ids of one append are one unit: all or nothing, side by side
    key       (invoke of append, optional) the idempotency key
    snapshot  (ok of snapshot; invoke of rollback, or of a read of a past state) the snapshot's id
    limit     (invoke of trim, optional) at most so many messages stay
    error     (fail, info) what was raised

`Recorder` writes them with one `os.write` per event, so that kill -9 loses no acknowledgement; `load` reads a file
or a folder of files, one per process, and tolerates a torn last line in each. docs/history-format.md has the long form.
"""

from everturn.testing.history.judge import Verdict, judge
from everturn.testing.history.judge_file import judge_file
from everturn.testing.history.record import BadHistory, Recorder, Recording, load, save, says_not_written

__all__ = ["BadHistory", "Recorder", "Recording", "Verdict", "judge", "judge_file", "load", "save", "says_not_written"]
