"""A SQLite file that is damaged in one place is loud or reads as before, and `verify` names the damage.

Some fifty here; `make fuzz`, or EVERTURN_DEEP=1, tries thousands.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.file_fuzz import DAMAGES, Original, build, rounds
from tests.tiers import deep

TIMES = 20 if os.environ.get("EVERTURN_DEEP") == "1" else 1
SOME = {how: TIMES * (48 if how == "flip" else 12) for how in DAMAGES}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    path = tmp_path_factory.mktemp("fuzz") / "sound.db"
    build(path)
    return Original.of(path)


@pytest.fixture(scope="module")
def unchecked(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """A file without page checksums, as older ones are."""
    path = tmp_path_factory.mktemp("fuzz") / "plain.db"
    build(path, page_checksums=False)
    return Original.of(path)


@pytest.mark.parametrize("how", list(DAMAGES))
@pytest.mark.parametrize("pages", ["checked", "unchecked"])
@pytest.mark.parametrize("first", [0, deep(1)])
def test_damage_is_loud_or_harmless_and_verify_names_it(
    request: pytest.FixtureRequest, how: str, pages: str, first: int, tmp_path: Path
) -> None:
    count = SOME[how] // 2
    sound: Original = request.getfixturevalue("original" if pages == "checked" else "unchecked")
    seen = dict(rounds(sound, how, range(first * count, (first + 1) * count), tmp_path))
    assert len(seen) > count // 2
    assert {seed: verdict for seed, verdict in seen.items() if not verdict.is_good} == {}
    assert any(verdict.loud for verdict in seen.values()), "nothing was damaged"
