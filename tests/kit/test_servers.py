"""Targets with servers: a private one behind a proxy, or the user's own, in a namespace and left as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.runner import Chosen, Runner, run_all
from everturn.testing.kit.target import parse
from everturn.testing.servers import ValkeyServer, valkey_server
from tests.kit.running import result

SOME = ("store-and-retrieve", "clear-all", "isolation-of-clear", "processes-lose-nothing", "backend-down", "garbage")


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with valkey_server() as server:
        yield server


def test_the_users_server_is_used_in_a_namespace_and_left_as_it_was(server: ValkeyServer) -> None:
    server.command("SET", "mine", "untouched")
    chosen = [Chosen(clause) for clause in CLAUSES if clause.id in SOME]
    with Environment(parse(server.url, use_server=True), seed=1, quick=True) as run:
        report = run_all(Runner(run, chosen, budget=10), chosen)
        assert not run.proxies
    statuses = {clause.id: clause.status for clause in report.clauses}
    assert statuses == {
        "store-and-retrieve": "holds",
        "clear-all": "not_offered",  # it would clear the user's sessions
        "isolation-of-clear": "holds",
        "processes-lose-nothing": "holds",
        "backend-down": "not_offered",  # it would be down for everybody
        "garbage": "not_offered",
    }
    assert not is_left(server)


def is_left(server: ValkeyServer) -> list[str]:
    """The keys of everturn that will stay: those of tombstones go by themselves, a minute after an erasure."""
    keys = [key for key in server.command("KEYS", "*") if key != "mine"]
    return [
        key
        for key in keys
        if not {"fence"} <= set(server.command("HKEYS", key)) <= {"fence", "calls"}
        or not 0 < server.command("TTL", key) <= 60
    ]


def test_a_private_server_is_gone_when_the_run_ends() -> None:
    with Environment(parse("redis://somewhere.example/3"), seed=1, quick=True) as run:
        assert "somewhere" not in run.urls["redis_url"]
        started = run.servers["redis_url"]
        assert started.running
        pid = started.pids[0]
        assert run.offered >= {"server", "private", "corrupt", "redis_url"}
    with pytest.raises(Exception, match="block"):
        assert pid not in started.pids


ON_DYNAMODB = ("garbage", "plain-process", "reply-swallowed", "server-restarted", "cut-in-commit")


def test_dynamodb_is_a_private_stand_in_behind_a_proxy() -> None:
    chosen = [Chosen(clause) for clause in CLAUSES if clause.id in ON_DYNAMODB]
    with Environment(parse("dynamodb://mine?region=eu-west-9"), seed=1, quick=True) as run:
        assert run.urls["dynamodb_endpoint"] == run.proxies["dynamodb_endpoint"].url
        assert run.offered >= {"server", "private", "corrupt", "ttl", "timeout", "threads", "processes"}
        is_durable = run.servers["dynamodb_endpoint"].is_durable
        report = run_all(Runner(run, chosen, budget=20), chosen)
    expected = dict.fromkeys(ON_DYNAMODB, "holds")
    if not is_durable:
        expected["server-restarted"] = "not_offered"
    assert {clause.id: clause.status for clause in report.clauses} == expected


@pytest.mark.parametrize("clause", ["backend-slow", "connections-cut", "reply-swallowed"])
def test_a_store_that_opens_late_on_a_busy_machine_is_not_a_broken_one(clause: str) -> None:
    assert result("kit.stores:late_at_first", clause).status == "holds"


@pytest.mark.parametrize("clause", ["backend-slow", "connections-cut", "reply-swallowed"])
def test_what_cannot_be_read_when_all_is_well_again_was_not_kept(clause: str) -> None:
    found = result("kit.stores:one_reader", clause)
    assert found.status == "broken"
    assert "not for you" in str(found)
