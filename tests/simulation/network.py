"""Messages between simulated hosts: each exchange is a request and a reply, and has a Delivery.

The world gives the server's side of a request, and the driver's words for a failure.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from random import Random
from typing import Any

from everturn.errors import MemoryStoreBackendError
from tests.simulation.hosts import Host
from tests.simulation.scheduler import Scheduler, Signal
from tests.simulation.schedules import Delivery, Schedule

CLEAN = Delivery()


class Attempt:
    """One request on its way, with all that the judge wants to know of it."""

    __slots__ = ("arrivals", "change", "host", "issued", "name", "op", "sent", "until")

    def __init__(self, op: Any, host: Host, name: str, sent: float, until: float, *, change: bool = True) -> None:
        self.op = op
        self.host = host
        self.name = name
        self.sent = sent
        self.change = change
        self.arrivals = 0
        self.until = until  # true time at which whoever sent it gives up on it
        self.issued: float | None = None  # what its server's clock showed when it was sent, where servers are several


class Deliveries:
    """The delivery of each exchange: as written down, or drawn from the seed, whatever else happens meanwhile."""

    def __init__(self, schedule: Schedule) -> None:
        self._given = schedule.deliveries
        self._seed = schedule.seed
        self._failure_rates = schedule.failure_rates
        self._timeout = schedule.timeout
        self.drawn: dict[str, Delivery] = {}

    def of(self, name: str) -> Delivery:
        if self._given is not None:
            delivery = self._given.get(name, CLEAN)
        else:
            delivery = self._draw(Random(f"{self._seed} {name}"))
        self.drawn[name] = delivery
        return delivery

    def _draw(self, random: Random) -> Delivery:
        out, back = (round(random.expovariate(500), 6) for _ in range(2))
        dice = random.random()
        kind = None
        for trouble, share in self._failure_rates.items():
            if 0 <= dice < share:
                kind = trouble
            dice -= share
        if kind is None:
            return Delivery("ok", out, back)
        longest = self._timeout
        hold = round(random.choice((random.uniform(0, longest), random.uniform(0, 4 * longest))), 6)
        notice = random.choice((None, round(random.expovariate(100), 6), round(random.uniform(0, longest), 6)))
        if kind == "dies":
            return Delivery(kind, out, back, random.choice((out, hold)), round(random.expovariate(300), 6))
        return Delivery(kind, out, back, hold, notice)


class Network:
    """Carries exchanges. `deliver(server, attempt, payload, most)` executes one in a server, and returns its reply.

    `gone(exc, change=)` words a request that may have arrived, `unsent(exc)` one that has not.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        deliveries: Deliveries,
        deliver: Callable[[Any, Attempt, Any, int | None], Any],
        gone: Callable[..., BaseException],
        unsent: Callable[[BaseException], BaseException],
        tell: Callable[[str, str], None],
    ) -> None:
        self._scheduler = scheduler
        self._fates = deliveries
        self._deliver = deliver
        self._gone = gone
        self._unsent = unsent
        self._tell = tell
        self._counts: dict[str, int] = {}
        self.down: set[Any] = set()  # servers that take no connection
        self.until: dict[Any, float] = {}  # servers that are paused, until when
        self.unreachable: dict[str, float] = {}  # hosts that reach nobody, until when

    async def exchange(self, host: Host, server: Any, payload: Any, what: str, deadline: float, *, change: bool) -> Any:
        """Send a request and wait for its reply, until the deadline (on the host's clock)."""
        scheduler = self._scheduler
        task = scheduler.task
        if not host.is_alive or task is None:
            raise self._unsent(ConnectionError("the process is gone"))
        op = task.tag
        series = f"{op.id if op else 0} {'change' if change else 'look'}"
        number = self._counts[series] = self._counts.get(series, 0) + 1
        name = f"{series} {number}"
        until = host.true(deadline)
        sent = scheduler.now
        delivery = self._fates.of(name)
        label = f"{what} ({name})"
        if sent >= until:
            raise self._unsent(TimeoutError("no time left"))
        signal = Signal(scheduler)
        if server in self.down or delivery.kind == "refused":
            self._tell(host.name, f"cannot connect for {label}")
            scheduler.at(sent + delivery.out, lambda: signal.set(error=self._unsent(ConnectionError("refused"))))
        else:
            attempt = Attempt(op, host, name, sent, until, change=change)
            self._send(attempt, server, payload, delivery, label, signal)
        scheduler.at(until, lambda: signal.set(error=self._gone(TimeoutError("timed out"), change=change)))
        try:
            return await signal
        except CancelledError:
            if change:  # seen through to its outcome, as the drivers' sides do
                try:
                    await signal
                except Exception:  # noqa: BLE001 - nobody hears of it any more
                    pass
            raise

    def _send(
        self, attempt: Attempt, server: Any, payload: Any, delivery: Delivery, label: str, signal: Signal
    ) -> None:
        scheduler, sent = self._scheduler, attempt.sent
        kind = "lost" if self.unreachable.get(attempt.host.name, 0.0) > sent else delivery.kind
        self._tell(attempt.host.name, f"sends {label}" + (f": {_said(delivery, kind)}" if kind != "ok" else ""))
        if kind in ("lost", "mute", "held", "cut") and delivery.notice is not None:
            scheduler.at(
                sent + delivery.notice,
                lambda: signal.set(
                    error=self._gone(ConnectionError("the connection was reset"), change=attempt.change)
                ),
            )
        if kind == "lost":
            return
        arrival = sent + (delivery.hold if kind in ("held", "dies") else delivery.out)
        most = 1 if kind == "cut" else None
        heard = signal if kind in ("ok", "held", "twice") else None
        scheduler.at(arrival, lambda: self._arrive(attempt, server, payload, most, heard, delivery.back))
        if kind == "twice":
            scheduler.at(
                sent + delivery.hold, lambda: self._arrive(attempt, server, payload, None, None, delivery.back)
            )
        if kind == "dies":
            scheduler.at(sent + (delivery.notice or 0.0), lambda: self._die(attempt.host))

    def _die(self, host: Host) -> None:
        if host.is_alive:
            self._tell(host.name, "is killed")
            host.kill()

    def _arrive(
        self, attempt: Attempt, server: Any, payload: Any, most: int | None, heard: Signal | None, back: float
    ) -> None:
        now = self._scheduler.now
        if server in self.down:
            if heard is not None:
                heard.set(error=self._gone(ConnectionError("the server closed the connection"), change=attempt.change))
            return
        if self.until.get(server, 0.0) > now:
            self._scheduler.at(self.until[server], lambda: self._arrive(attempt, server, payload, most, heard, back))
            return
        attempt.arrivals += 1
        try:
            reply = self._deliver(server, attempt, payload, most)
        except MemoryStoreBackendError as exc:
            if heard is not None:
                error = exc  # the name `exc` ends with this block
                self._scheduler.at(now + back, lambda: heard.set(error=error))
            return
        if heard is not None:
            self._scheduler.at(now + back, lambda: heard.set(reply))


def _said(delivery: Delivery, kind: str) -> str:
    notice = "" if delivery.notice is None else f", the connection fails after {delivery.notice:.3f} s"
    words = {
        "lost": f"the request is lost{notice}",
        "mute": f"the reply will be lost{notice}",
        "held": f"the request is held for {delivery.hold:.3f} s{notice}",
        "twice": f"the request will arrive again after {delivery.hold:.3f} s",
        "cut": f"the connection is cut behind the first command{notice}",
        "dies": f"the process will be killed, the request arrives after {delivery.hold:.3f} s",
    }
    return words[kind]
