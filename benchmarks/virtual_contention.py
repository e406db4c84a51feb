"""Writers of one session of DynamoDB in virtual time: requests a turn and waits, whatever else the machine does.

    python -m benchmarks.virtual_contention --writers 1 2 8 --turns 400 --seeds 16

Every writer has a store of its own, in one event loop whose clock jumps to the next event. A request takes the time
that a seed draws, and is applied by a stand-in at one moment of that. With `--held`, the items of a transaction are
busy for a share of its time, and others that touch them meanwhile are refused, as AWS does (TransactionConflict).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import selectors
import statistics
import time
import uuid
from collections import Counter
from typing import Any

real_monotonic = time.monotonic
_now = [1000.0]


def _virtual() -> float:
    return _now[0]


class _Selector(selectors.SelectSelector):
    """Sleeps by setting the clock."""

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everybody waits for somebody")
        _now[0] += max(0.0, timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__(_Selector())

    def time(self) -> float:
        return _now[0]


class World:
    """The network and the table: how long a request takes, and which items are busy."""

    def __init__(self, driver: Any, seed: int, trip: float, held: float) -> None:
        self.driver = driver
        self.random = random.Random(seed)
        self.trip, self.held = trip, held
        self.sent: Counter[str] = Counter()
        self.conflicts = self.requests = 0
        self._busy: dict[tuple[str, str], float] = {}

    def _takes(self) -> float:
        slow = 5 if self.random.random() < 0.01 else 1
        return slow * self.trip * self.random.lognormvariate(0, 0.25)

    async def request(self, operation: str, parameters: dict[str, Any]) -> Any:
        from botocore.exceptions import ClientError

        self.sent[operation] += 1
        takes = self._takes()
        hold = takes * self.held if operation == "transact_write_items" else 0.0
        await asyncio.sleep((takes - hold) / 2)
        keys = _keys_of(operation, parameters)
        if any(self._busy.get(key, 0) > _now[0] for key in keys) and operation in (
            "transact_write_items",
            "update_item",
        ):
            self.conflicts += 1
            await asyncio.sleep((takes - hold) / 2)
            if operation == "update_item":
                raise ClientError({"Error": {"Code": "TransactionConflictException"}}, operation)  # type: ignore[typeddict-item]
            reasons = [{"Code": "TransactionConflict"}, *({"Code": "None"} for _ in keys[1:])]
            told = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
            raise ClientError(told, "TransactWriteItems")  # type: ignore[arg-type]
        if hold:
            self._busy |= dict.fromkeys(keys, _now[0] + hold)
            await asyncio.sleep(hold)
        answer: Any
        try:
            answer = getattr(self.driver, operation)(**parameters)
        except ClientError as exc:
            answer = exc
        await asyncio.sleep((takes - hold) / 2)
        if isinstance(answer, ClientError):
            raise answer
        return answer


def _keys_of(operation: str, parameters: dict[str, Any]) -> list[tuple[str, str]]:
    if operation == "update_item":
        return [_key(parameters["Key"])]
    if operation != "transact_write_items":
        return []
    parts = [part for write in parameters["TransactItems"] for part in write.values()]
    return [_key(part.get("Key") or part["Item"]) for part in parts]


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


def through(world: World) -> None:
    """Let the clients of all stores send by way of the world, without threads."""
    from everturn.backends.dynamodb import errors
    from everturn.backends.dynamodb.client import DynamoDBClient

    async def send(
        client: Any, operation: str, parameters: dict[str, Any], deadline: float, *, writes: bool = False
    ) -> Any:
        try:
            async with asyncio.timeout(max(0.0, deadline - _now[0])):
                return await world.request(operation, parameters)
        except TimeoutError:
            raise errors.unanswered(client.name, writes=writes) from None
        except Exception as exc:
            raise errors.from_driver(exc, client.name, writes=writes) from exc

    tasks = set()

    def send_unawaited(client: Any, operation: str, parameters: dict[str, Any] | None, again: Any) -> None:
        async def run() -> None:
            left = parameters
            while left is not None:
                try:
                    await send(client, operation, left, _now[0] + 60, writes=True)
                except errors.ConditionNotMet as exc:
                    left = again(exc.items[0])
                except Exception:  # noqa: BLE001
                    return
                else:
                    return

        task = asyncio.ensure_future(run())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    DynamoDBClient.send, DynamoDBClient.send_unawaited = send, send_unawaited  # type: ignore[method-assign]


async def run(world: World, url: str, writers: int, turns: int, rest: float) -> list[float]:
    """Let the writers append; returns the virtual seconds of each append."""
    import everturn
    from everturn import ChatMessage

    through(world)
    stores = [await everturn.open_async(url, timeout=60) for _ in range(writers)]
    await stores[0].add_messages("a", [ChatMessage("user", "first")])
    world.sent.clear()
    taken: list[float] = []

    async def write(store: Any, number: int) -> None:
        for turn in range(turns // writers):
            begun = _now[0]
            await store.add_messages("a", [ChatMessage("user", f"{number}/{turn}")])
            taken.append(_now[0] - begun)
            await asyncio.sleep(0.0005 + (world.random.expovariate(1 / rest) if rest else 0))

    await asyncio.gather(*(write(store, number) for number, store in enumerate(stores)))
    world.requests = sum(world.sent.values())
    said = [message.content for message in await stores[0].get_history("a")]
    assert sorted(said[1:]) == sorted(f"{n}/{turn}" for n in range(writers) for turn in range(turns // writers))
    for store in stores:
        await store.close()
    return taken


def main() -> None:
    """Print a line for each number of writers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--writers", nargs="+", type=int, default=[1, 2, 8])
    parser.add_argument("--turns", type=int, default=240)
    parser.add_argument("--seeds", type=int, default=5, help="how many; the least and most of them are told, too")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--trip", type=float, default=0.010, help="seconds of a request")
    parser.add_argument("--held", type=float, default=0.0, help="share of that in which a transaction holds its items")
    parser.add_argument("--rest", type=float, default=0.0, help="seconds between two turns of a writer")
    parser.add_argument("--set", nargs="*", default=[], help="NAME=VALUE of head_queue.py")
    arguments = parser.parse_args()
    from everturn.testing.servers import dynamodb_server
    from everturn.testing.servers.dynamodb import CREDENTIALS

    os.environ |= CREDENTIALS
    with dynamodb_server() as server:
        import botocore.session

        from everturn.backends.dynamodb import head_queue
        from everturn.backends.dynamodb.create_table import definition

        for given in arguments.set:
            name, _, value = given.partition("=")
            setattr(head_queue, name, eval(value))
        driver = botocore.session.get_session().create_client(
            "dynamodb", region_name="us-east-1", endpoint_url=server.endpoint
        )
        time.monotonic = _virtual
        from everturn.store import aio

        for kind in vars(aio).values():
            if isinstance(kind, type) and "clock" in vars(kind):
                kind.clock = staticmethod(_virtual)  # type: ignore[attr-defined]
        for writers in arguments.writers:
            all_taken: list[list[float]] = []
            requests = conflicts = 0
            by_seed: list[float] = []
            kinds: Counter[str] = Counter()
            for seed in range(arguments.first, arguments.first + arguments.seeds):
                table = f"t-{uuid.uuid4().hex}"
                driver.create_table(**definition(table))
                random.seed(seed)
                world = World(driver, seed, arguments.trip, arguments.held)
                loop = _Loop()
                url = f"dynamodb://{table}?region=us-east-1&endpoint={server.endpoint}"
                all_taken.append(loop.run_until_complete(run(world, url, writers, arguments.turns, arguments.rest)))
                loop.close()
                requests += world.requests
                by_seed.append(world.requests / len(all_taken[-1]))
                kinds += world.sent
                conflicts += world.conflicts
            done = sum(map(len, all_taken))
            trips = sorted(one / arguments.trip for each in all_taken for one in each)
            late = f"p99 {trips[int(len(trips) * 0.99)]:.0f}, worst {trips[-1]:.0f}"
            waits = f"in round trips: median {statistics.median(trips):.1f}, {late}"
            each = {name: round(count / done, 2) for name, count in kinds.items()}
            spread = f"{min(by_seed):.2f} to {max(by_seed):.2f} by seed"
            told = f"{writers} writers: {requests / done:.2f} requests a turn ({spread}); {waits}"
            print(f"{told}; conflicts {conflicts / done:.2f}; {each}", flush=True)


if __name__ == "__main__":
    main()
