"""Summaries and the search over their embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from everturn import InvalidInput, Summary
from tests.store.speech import say


def add(store: Any, session_id: str, *embeddings: Any) -> None:
    for number, embedding in enumerate(embeddings):
        store.add_summary(session_id, Summary(f"s{number}", embedding, (1, 1)))


def found(hits: list[Any]) -> list[str]:
    return [hit.summary.text for hit in hits]


def test_a_summary_comes_back(store: Any) -> None:
    receipt = store.add_summary("a", Summary("what was said", [0.5, -1.0], (3, 9)))
    (summary,) = store.get_summaries("a")
    assert (summary.text, list(summary.embedding), summary.covers) == ("what was said", [0.5, -1.0], (3, 9))
    assert (summary.seq,) == receipt.seqs


def test_an_embedding_is_kept_as_float32(store: Any) -> None:
    add(store, "a", [0.1, 1 / 3])
    assert list(store.get_summaries("a")[0].embedding) == [float(np.float32(0.1)), float(np.float32(1 / 3))]


def test_an_embedding_may_be_an_array(store: Any) -> None:
    vector = np.random.default_rng(1).normal(size=8).astype(np.float32)
    add(store, "a", vector)
    assert np.array_equal(np.array(store.get_summaries("a")[0].embedding, dtype=np.float32), vector)
    assert found(store.search_summaries("a", vector)) == ["s0"]


def test_a_summary_is_no_message(store: Any) -> None:
    add(store, "a", [1.0])
    assert store.get_history("a") == []
    assert store.info("a").messages == 0


def test_the_first_embedding_fixes_the_length(store: Any) -> None:
    add(store, "a", [1.0, 2.0])
    before = store.state("a")
    with pytest.raises(InvalidInput, match="2 numbers"):
        add(store, "a", [1.0, 2.0, 3.0])
    assert store.state("a") == before


def test_each_session_has_a_length_of_its_own(store: Any) -> None:
    add(store, "a", [1.0, 2.0])
    add(store, "b", [1.0, 2.0, 3.0])
    assert found(store.search_summaries("b", [1.0, 1.0, 1.0])) == ["s0"]


def test_a_turn_with_embeddings_of_two_lengths_is_refused(store: Any) -> None:
    with pytest.raises(InvalidInput, match="one length"):
        store.append("a", [Summary("x", [1.0], (1, 1)), Summary("y", [1.0, 2.0], (1, 1))])
    assert store.sessions().sessions == ()


def test_a_fork_keeps_the_length(store: Any) -> None:
    add(store, "a", [1.0, 2.0])
    store.fork("a", "b")
    with pytest.raises(InvalidInput):
        add(store, "b", [1.0])


def test_a_search_with_the_wrong_length_is_refused(store: Any) -> None:
    add(store, "a", [1.0, 2.0])
    with pytest.raises(InvalidInput, match=r"^embedding: "):
        store.search_summaries("a", [1.0])


@pytest.mark.parametrize(
    "embedding",
    [[], "abc", b"abc", None, 7, ["x"], [[1.0]], [float("nan")], [1.0, float("inf")], [1e300], [None]],
)
def test_what_is_no_embedding_is_refused(one_store: Any, embedding: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^summary\.embedding"):
        add(one_store, "a", embedding)
    with pytest.raises(InvalidInput, match=r"^embedding"):
        one_store.search_summaries("a", embedding)
    assert one_store.sessions().sessions == ()


def test_an_embedding_that_can_be_read_once_only_is_taken_or_refused(store: Any) -> None:
    try:
        add(store, "a", (float(n) for n in range(3)))
    except InvalidInput:
        assert store.get_summaries("a") == []
    else:
        assert list(store.get_summaries("a")[0].embedding) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("covers", [(1,), (1, 2, 3), "12", None, (1.0, 2), (-1, 2), (True, 2)])
def test_what_covers_nothing_is_refused(one_store: Any, covers: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^summary\.covers"):
        one_store.add_summary("a", Summary("s", [1.0], covers))


def test_huge_seqs_come_back_or_are_refused(store: Any) -> None:
    try:
        store.add_summary("a", Summary("s", [1.0], (1, 2**70)))
    except InvalidInput:
        assert store.sessions().sessions == ()
    else:
        assert store.get_summaries("a")[0].covers == (1, 2**70)


def test_only_a_summary_is_a_summary(store: Any) -> None:
    with pytest.raises(InvalidInput, match="summary"):
        store.add_summary("a", {"text": "x"})


# --- search ----------------------------------------------------------------------------------------------------------


def test_search_gives_the_most_alike_first(store: Any) -> None:
    add(store, "a", [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0])
    hits = store.search_summaries("a", [1.0, 0.1])
    assert found(hits) == ["s0", "s2", "s1", "s3"]
    assert hits[0].score == pytest.approx(1 / np.hypot(1, 0.1))


def test_cosine_ignores_length(store: Any) -> None:
    add(store, "a", [100.0, 0.0], [0.001, 0.0])
    assert [hit.score for hit in store.search_summaries("a", [5.0, 0.0])] == pytest.approx([1.0, 1.0])


def test_ties_go_by_seq(store: Any) -> None:
    alike, less = [0.3, 0.7, 0.1], [-0.5, 0.1, 0.2]
    store.append("a", [Summary(f"s{n}", less if n % 3 else alike, (1, 1)) for n in range(300)])
    in_order = [n for n in range(300) if n % 3 == 0] + [n for n in range(300) if n % 3]
    assert found(store.search_summaries("a", [0.3, 0.7, 0.1], k=300)) == [f"s{n}" for n in in_order]


def test_a_vector_of_zeros_is_like_nothing(store: Any) -> None:
    add(store, "a", [0.0, 0.0], [1.0, 0.0], [-1.0, 0.0])
    hits = store.search_summaries("a", [1.0, 0.0])
    assert [(hit.summary.text, hit.score) for hit in hits] == [("s1", 1.0), ("s0", 0.0), ("s2", -1.0)]
    assert [hit.score for hit in store.search_summaries("a", [0.0, 0.0])] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("k", [0, 1, 3, 99])
def test_k_is_at_most(store: Any, k: int) -> None:
    add(store, "a", [1.0], [2.0], [3.0])
    assert len(store.search_summaries("a", [1.0], k=k)) == min(k, 3)


def test_five_are_given_unless_told_otherwise(store: Any) -> None:
    add(store, "a", *[[1.0]] * 7)
    assert len(store.search_summaries("a", [1.0])) == 5


@pytest.mark.parametrize("k", [-1, 1.5, "3"])
def test_a_k_that_is_no_count_is_refused(one_store: Any, k: object) -> None:
    with pytest.raises(InvalidInput, match=r"^k: "):
        one_store.search_summaries("a", [1.0], k=k)


def test_search_never_finds_another_sessions(store: Any) -> None:
    add(store, "a", [1.0, 0.0])
    add(store, "A", [1.0, 0.0], [1.0, 0.0])
    add(store, "ab", [1.0, 0.0])
    assert len(store.search_summaries("a", [1.0, 0.0])) == 1


def test_a_summary_written_after_the_snapshot_is_not_found_after_a_rollback(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    add(store, "a", [1.0])
    store.rollback_to_snapshot("a", snapshot)
    assert store.search_summaries("a", [1.0]) == []
    store.undo("a")
    assert found(store.search_summaries("a", [1.0])) == ["s0"]


def test_search_agrees_with_numpy(store: Any) -> None:
    chance = np.random.default_rng(7)
    vectors = chance.normal(size=(200, 32)).astype(np.float32)
    store.append("a", [Summary(str(n), vector.tolist(), (1, 1)) for n, vector in enumerate(vectors)])
    wanted = chance.normal(size=32).astype(np.float32)
    exact = vectors.astype(np.float64)
    scores = exact @ wanted / (np.linalg.norm(exact, axis=1) * np.linalg.norm(wanted.astype(np.float64)))
    hits = store.search_summaries("a", wanted.tolist(), k=50)
    assert [int(hit.summary.text) for hit in hits] == np.argsort(-scores)[:50].tolist()
    assert [hit.score for hit in hits] == pytest.approx(np.sort(scores)[::-1][:50].tolist())
