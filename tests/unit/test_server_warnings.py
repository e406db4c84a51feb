"""What is judged hostile about a server, and how it is said. No server is asked; tests/integration asks real ones."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from everturn.backends._shared.server_warnings import Finding, HostileSetting, say, together
from everturn.backends.postgres import open_checks as postgres
from everturn.backends.redis import open_checks as redis

SOUND = {"role": "master", "aof_enabled": "1", "maxmemory": "0", "maxmemory_policy": "noeviction"}
REPLICA = "ip=10.0.0.2,port=6379,state={state},offset=1,lag={lag}"


def told(about: dict[str, str], wait_replicas: int = 0, **settings: str) -> list[str]:
    found = list(redis.wrong_with(redis.ServerAnswers(SOUND | about, **settings), wait_replicas))
    assert all(len(part) > 5 for finding in found for part in finding)
    return [what for what, _, _ in found]


def test_a_sound_redis_is_not_accused_nor_one_that_does_not_tell() -> None:
    assert told({}, save="3600 1", appendfsync="everysec", min_replicas="0") == []
    assert told({"slave0": REPLICA.format(state="online", lag=1)}, wait_replicas=1) == []
    assert list(redis.wrong_with(redis.ServerAnswers({}), 1)) == []


@pytest.mark.parametrize(
    ("about", "settings", "what"),
    [
        ({"maxmemory": "9", "maxmemory_policy": "allkeys-lru"}, {}, "maxmemory-policy allkeys-lru"),
        ({"maxmemory": "9", "maxmemory_policy": "volatile-ttl"}, {}, "maxmemory-policy volatile-ttl"),
        ({"aof_enabled": "0"}, {"save": ""}, "nothing is kept on disk"),
        ({"aof_enabled": "0"}, {"save": "3600 1"}, "only now and then"),
        ({"aof_enabled": "0"}, {}, "only now and then"),
        ({}, {"appendfsync": "no"}, "appendfsync no"),
        ({"aof_last_write_status": "err"}, {}, "write to disk failed"),
        ({"rdb_last_bgsave_status": "err"}, {}, "write to disk failed"),
        ({"role": "slave", "master_link_status": "up"}, {}, "read-only replica"),
        ({"slave0": REPLICA.format(state="online", lag=11)}, {}, "stale replicas (10.0.0.2:6379)"),
        ({"slave0": REPLICA.format(state="wait_bgsave", lag=0)}, {}, "stale replicas"),
        ({"min_slaves_good_slaves": "1"}, {"min_replicas": "2"}, "min-replicas-to-write 2"),
    ],
)
def test_each_hostile_setting_of_redis_is_found(about: dict[str, str], settings: dict[str, str], what: str) -> None:
    (found,) = told(about, **settings)
    assert what in found


def test_a_policy_without_a_limit_evicts_nothing() -> None:
    assert told({"maxmemory_policy": "allkeys-lru"}) == []


def test_a_replica_that_has_lost_its_master_is_stale() -> None:
    assert told({"role": "slave", "master_link_status": "down"}) == ["a read-only replica", "it has lost its master"]


@pytest.mark.parametrize("lag", ["11", None])
def test_replicas_that_are_waited_for_and_not_there_are_told(lag: str | None) -> None:
    replicas = {"slave0": REPLICA.format(state="online", lag=lag)} if lag else {}
    assert "0 replicas follow it, but wait_replicas=1" in told(replicas, wait_replicas=1)


def test_a_sound_postgres_is_not_accused() -> None:
    assert list(postgres.wrong_with(postgres.PostgresSettings())) == []


@pytest.mark.parametrize(
    ("answers", "what"),
    [
        ({"fsync": "off"}, "fsync=off"),
        ({"synchronous_commit": "off"}, "synchronous_commit=off"),
        ({"full_page_writes": "off"}, "full_page_writes=off"),
        ({"read_only": True}, "default_transaction_read_only=on"),
        ({"in_recovery": True}, "a standby"),
        ({"stale_standbys": 2}, "2 of its standbys"),
        ({"lacks_synchronous": True}, "synchronous_standby_names"),
    ],
)
def test_each_hostile_setting_of_postgres_is_found(answers: dict[str, Any], what: str) -> None:
    ((found, risk, fix),) = postgres.wrong_with(postgres.PostgresSettings(**answers))
    assert what in found
    assert risk
    assert fix


def test_a_standby_that_has_lost_its_primary_is_stale() -> None:
    found = postgres.wrong_with(postgres.PostgresSettings(in_recovery=True, has_primary=False))
    assert [what for what, _, _ in found] == ["a standby", "it has lost its primary"]


# --- how it is said --------------------------------------------------------------------------------------------------


def test_what_several_servers_share_is_said_once_and_names_them_all() -> None:
    found = [Finding("one", "w", "r", "f"), Finding("two", "x", "r", "f"), Finding("three", "w", "r", "f")]
    assert together(found) == [Finding("one, three", "w", "r", "f"), Finding("two", "x", "r", "f")]


def test_a_warning_says_where_what_risk_and_fix_and_points_to_the_caller() -> None:
    with pytest.warns(HostileSetting) as said:
        say([Finding("a server", "x=off", "turns are lost", "set x = on")], "redis")
    assert str(said[0].message) == "a server: x=off: turns are lost. To mend it: set x = on"
    assert said[0].filename == __file__


def test_nothing_found_is_nothing_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        say([], "redis")
