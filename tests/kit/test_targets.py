"""Targets of the kit, and the features that a factory's signature offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.testing.kit.environment import Environment
from everturn.testing.kit.target import TargetError, load, of_factory, offer_of, parse
from tests.kit import stores


def test_a_url_names_a_backend_and_is_pointed_at_a_private_place(tmp_path: Path) -> None:
    mine = tmp_path / "mine.db"
    with Environment(parse(f"sqlite:////{mine}"), seed=1, quick=True) as run:
        assert run.offered >= {"processes", "threads", "vfs", "ttl", "timeout", "files"}
        root = run.root
    assert not mine.exists()
    assert not root.exists()


def test_a_url_in_memory_offers_no_processes() -> None:
    assert not offer_of(load(parse("sqlite://"))).processes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "neither a store URL"),
        ("module:", "neither a store URL"),
        ("mongodb://x", "--use-server"),
    ],
)
def test_what_is_no_target_is_refused(text: str, says: str) -> None:
    with pytest.raises(TargetError, match=says):
        parse(text)


def test_a_store_that_takes_no_dicts_is_told_of_factory_message() -> None:
    with Environment(parse("tests.kit.stores:of_objects"), seed=1, quick=True) as run:
        assert run.smoke is not None
        assert "raised AttributeError: text" in run.smoke
        assert "The kit passed dicts with role and content" in run.smoke
        assert "set factory.message" in run.smoke


@pytest.mark.parametrize("text", ["sqlite:///x.db", "a.b:c"])
def test_only_a_server_can_be_used_as_it_is(text: str) -> None:
    with pytest.raises(TargetError, match="use-server"):
        parse(text, use_server=True)


def test_the_signature_says_what_is_offered() -> None:
    offer = offer_of(stores.asks_for_all)
    assert offer.options == {"session_id", "redis_url", "ttl", "timeout"}
    assert (offer.processes, offer.share_threads, offer.corrupt, offer.cleanup) == (True, False, True, False)


def test_a_factory_that_asks_for_what_nobody_has_is_refused() -> None:
    with pytest.raises(TargetError, match="password"):
        offer_of(stores.asks_for_too_much)


def test_a_factory_without_a_place_is_refused() -> None:
    with pytest.raises(TargetError, match="first argument"):
        offer_of(lambda: None)


def test_a_factory_is_found_again_by_name() -> None:
    assert load(of_factory(stores.unlocked)) is stores.unlocked


def test_a_local_factory_cannot_be_found_again() -> None:
    with pytest.raises(TargetError, match="local"):
        of_factory(lambda where: None)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tests.kit.nowhere:factory", "cannot import"),
        ("tests.kit.stores:nothing", "has no nothing"),
        ("tests.kit.stores:Path", "first argument"),
        ("tests.kit.stores:shapeless", "none of the pairs of methods"),
        ("tests.kit.stores:never_opens", "no such luck"),
    ],
)
def test_a_target_that_cannot_run_says_why(name: str, says: str) -> None:
    with pytest.raises(TargetError, match=says):
        Environment(parse(name), seed=1, quick=True)


def test_a_module_that_no_name_finds_is_loaded_from_its_file(tmp_path: Path) -> None:
    module = tmp_path / "elsewhere.py"
    module.write_text("def factory(where):\n    return where\n")
    target = parse("not.on.the.path:factory")
    found = load(type(target)(target.text, target.module, target.name, file=str(module)))
    assert found(tmp_path) == tmp_path


@pytest.mark.parametrize("factory", ["in_a_block", "in_an_awaited_block"])
def test_a_factory_may_be_a_context_manager(factory: str) -> None:
    with Environment(parse(f"tests.kit.stores:{factory}"), seed=1, quick=True) as run:
        assert run.opened.shape == "add_messages/get_history"
        assert run.opened.awaited == (factory == "in_an_awaited_block")
