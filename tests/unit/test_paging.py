"""Tokens of pages, bounds of prefixes, patterns of texts: pure, and the same for every backend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn import InvalidInput
from everturn.backends._shared import paging
from everturn.backends._shared.paging import Token, beyond, token_of

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@given(texts, texts)
def test_all_that_begin_with_a_prefix_and_no_others_lie_below_its_bound(prefix: str, text: str) -> None:
    bound = beyond(prefix)
    inside = text.encode() >= prefix.encode() and (bound is None or text.encode() < bound.encode())
    assert inside == text.startswith(prefix)
    assert bound is None or (prefix + text).encode() < bound.encode()


@pytest.mark.parametrize(("prefix", "bound"), [("", None), ("a", "b"), ("a\U0010ffff", "b"), ("\ud7ff", "\ue000")])
def test_a_bound_is_a_text_that_can_be_stored(prefix: str, bound: str | None) -> None:
    assert beyond(prefix) == bound


def rows(*changes: tuple[str, float]) -> list[tuple[object, ...]]:
    return [(name, "life", 1, 1, 1, 1, 0, 0, 1.0, at, None, None, None) for name, at in changes]


def test_pages_by_name_go_on_after_the_last() -> None:
    token = token_of(None, None)
    page = paging.page_of(rows(("a", 3.0), ("b", 1.0)), token, 2)
    assert page.next
    token = token_of(page.next, None)
    assert (token.session_id, token.bound) == ("b", 0.0)
    assert paging.page_of([], token, 2).next is None


def test_pages_by_change_end_with_what_changed_meanwhile() -> None:
    token = paging.begun(token_of(None, "recent"), 10.0)
    assert token.bound == paging.AFTER_ALL
    page = paging.page_of(rows(("a", 9.0), ("b", 8.0)), token, 2)
    assert page.next
    token = token_of(page.next, "recent")
    assert (token.by_change, token.bound, token.session_id) == (True, 8.0, "b")
    page = paging.page_of(rows(("c", 7.0)), token, 2)
    assert page.next
    token = token_of(page.next, "recent")
    assert (token.by_change, token.bound, token.session_id) == (False, 10.0, "")
    assert paging.page_of(rows(("a", 11.0)), token, 2).next is None


def test_one_page_of_all_needs_no_second_look() -> None:
    assert paging.page_of(rows(("a", 9.0)), paging.begun(token_of(None, "recent"), 10.0), 2).next is None


@pytest.mark.parametrize("page", ["", "x", "e30=", "W10=", "é", "WyJyZWNlbnQiLDFd", paging.write(Token("recent"))])
def test_what_is_no_page_of_this_order_is_refused(page: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        token_of(page, None)
    assert caught.value.path == "page"


def test_a_text_is_looked_for_as_json_spells_it() -> None:
    assert paging.spelled('a"b\n\u2028\\') == 'a\\"b\\n\u2028\\\\'
    assert paging.pattern_for("50%_") == "%50\\%\\_%"
