"""Steps with leases and effects, waiting for a lease, and a call that sleeps while another worker takes its lease.

The clauses are in contract/resume.py and contract/effects.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from everturn.testing.kit.clause import Untested, describe_step
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.sweep import After, Prepare, Sweep, modes
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Done, Paused, Step, Stop

SHORT = 0.2  # seconds of a lease that is to run out; nothing is concluded from its being held
LONG = 600.0  # seconds of a lease that is to be held
PATIENCE = 5.0  # seconds after which a lease of SHORT that is still refused has not run out
_BLOCKED = 0.1  # seconds after which a call counts as one that waits for the call that sleeps
_PAUSE = 0.02
_TRIES = 10  # to renew a lease of SHORT in time


def take_lease(session: str, seconds: float = LONG) -> Step:
    return Step("take_lease", session, (seconds,))


def release_lease(session: str) -> Step:
    return Step("release_lease", session)


def append_with_lease(session: str, turn: Sequence[SentMessage]) -> Step:
    """Make the step that appends with the latest lease of the session that this instance took."""
    return Step("append", session, (tuple(turn),), {"lease": True})


def begin(session: str, key: str) -> Step:
    return Step("begin_effect", session, (key,))


def finish(session: str, key: str, result: str) -> Step:
    return Step("finish_effect", session, (key, result))


def fail(session: str, key: str, error: str) -> Step:
    return Step("fail_effect", session, (key, error))


def once(session: str, key: str, result: str) -> Step:
    """Make the step that does an effect by `once`. Its value is what that returned, and how often it was done."""
    return Step("once", session, (key, result))


def renew_lease(session: str, seconds: float) -> Step:
    """Make the step that renews the latest lease of the session that this instance took."""
    return Step("renew_lease", session, (seconds,))


def renew_in_time(instance: Instance, session: str) -> None:
    """Take a lease of SHORT, and renew it before it runs out. Raises Untested if the machine is too slow for that."""
    for _ in range(_TRIES):
        instance.value(take_lease(session, SHORT))
        if instance.take(renew_lease(session, LONG)).ok:
            return
    raise Untested(f"a lease of {SHORT} s could not be renewed before it ran out, {_TRIES} times")


def take_when_free(kit: Kit, instance: Instance, session: str) -> Any:
    """Take a lease as soon as that of another worker has run out. Returns its token. Raises Broken if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not (outcome := instance.take(take_lease(session))).ok:
        if time.monotonic() > deadline:
            kit.broken(f"a lease of {SHORT} s is held after {PATIENCE:.1f} s: {outcome.fault}", session=session)
        time.sleep(_PAUSE)
    return outcome.value


def begun(
    kit: Kit,
    instance: Instance,
    session: str,
    key: str,
    status: str,
    result: str | None = None,
    *,
    story: str = "",
) -> None:
    """Begin an effect. Raises Broken unless the caller is told this status, and this result."""
    step = begin(session, key)
    told = tuple(instance.value(step))
    if told != (status, result):
        before = f"{story}: " if story else ""
        kit.broken(f"{before}{describe_step(step)} is told {told}, not {(status, result)}", session=session)


def stop_with_lease(
    kit: Kit, holder: Instance, step: Step, n: int, other: Instance
) -> tuple[str | None, list[Any] | None]:
    """Stop a step of a lease's holder at its n-th driver call, until another worker has the lease and has read the
    session. Returns where it was stopped, None if it ended before; and the contents that were read, None if the other
    worker had to wait for the call."""
    session = step.session or ""
    holder.worker.send(holder.job(step, stop=Stop(n)))
    report = kit.any_report(holder.worker)
    if not isinstance(report, Paused):
        return None, None
    seen: list[Any] | None = None
    deadline = time.monotonic() + PATIENCE
    while seen is None and time.monotonic() < deadline:
        other.worker.send(other.job(take_lease(session), Step("read", session)))
        waits = not other.worker.poll(_BLOCKED)
        if waits:
            holder.worker.resume()
            kit.report(holder.worker, Done)
        taken, read = kit.report(other.worker, Done).outcomes[0]
        if waits:
            return report.at, None
        if taken.ok and read.ok:
            seen = [message.content for message in read.value]
        else:
            time.sleep(_PAUSE)
    holder.worker.resume()
    kit.report(holder.worker, Done)
    return report.at, seen


def sweep_all_modes(kit: Kit, prepare: Prepare, after: After) -> None:
    """Let two calls race at every point, in each way that the store's callers can stand side by side."""
    for mode in modes(kit):
        sweep = Sweep(kit, mode)
        sweep.run(prepare, after)
        kit.notes.append(sweep.describe())
