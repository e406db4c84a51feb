"""Histories: calls of many workers to a memory store, with times and results; recorded, saved and judged.

A history is events, one JSON object per line (`everturn.testing.results.Event`). Each call is two of them: an
*invoke* written before the call, and *ok*, *fail* or *info* written after it. A call whose end is missing (its
process was killed) counts as *info*.

    type      "invoke", then one of
              "ok"    the store acknowledged it
              "fail"  the store said that nothing was written (0 copies)
              "info"  it raised, and may have happened or not (0 or 1 copy, never a part)
    worker    the caller; `op` is the number of the call among that worker's. The two together name the call
    at        nanoseconds of one monotonic clock, shared by all processes of the machine
    session   (invoke) the session it is about
    f         (invoke) append, read, replace, trim, clear, snapshot, rollback, undo, erase
    values    (invoke of append and replace; ok of read) ids of messages, in order. An id is written by one call only,
              or by calls that share a `key`. The ids of one append are one unit: all or nothing, side by side
    key       (invoke of append, optional) the idempotency key
    snapshot  (ok of snapshot; invoke of rollback, or of a read of a past state) the snapshot's id
    limit     (invoke of trim, optional) at most so many messages stay
    error     (fail, info) the error that was raised

`Recorder` writes them with one `os.write` per event, so that kill -9 loses no acknowledgement; `load` reads a file
or a folder of files, one per process, and tolerates a torn last line in each. docs/history-format.md has the long form.

record.py          Recorder, load, save
parse.py           events to calls, by session, with the units that appends write
judge.py           the verdict; judge_file.py makes a report of a saved history
fast_accept.py     accepts a session of appends and reads that is in order, in one pass
read_anomalies.py  violations inside one read; read_rules.py between reads; order.py between the orders of reads
linearize.py       searches an order of the calls, where something was taken away
session_model.py   the states of a session and the effect of each call, for linearize.py
classify.py        names the violation when there is no such order
findings.py        the violations found; shrink.py reduces each to a few calls; explain.py puts it into words
"""

from everturn.testing.history.judge import Verdict, judge
from everturn.testing.history.judge_file import judge_file
from everturn.testing.history.record import BadHistory, Recorder, Recording, load, save, says_not_written

__all__ = ["BadHistory", "Recorder", "Recording", "Verdict", "judge", "judge_file", "load", "save", "says_not_written"]
