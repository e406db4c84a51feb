"""Commands are packed as the protocol has it, beside hiredis, which packs them too."""

from enum import Enum

import pytest
from hiredis import pack_command
from hypothesis import given
from hypothesis import strategies as st

from everturn.backends.redis import scripts
from everturn.backends.redis.transport.resp import Part, ScriptCall, packed


class Word(str, Enum):  # noqa: UP042 - the way it was written before StrEnum, which shows its text
    NOTE = "note"


class Octets(bytes):
    __slots__ = ()


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PARTS = st.one_of(st.binary(), TEXTS, st.integers(), st.sampled_from([Word.NOTE, Octets(b"x")]))
KEYS = st.lists(st.binary(), min_size=1, max_size=7).map(tuple)


@given(st.lists(st.lists(PARTS, min_size=1)))
def test_commands_go_out_one_behind_the_other(commands: list[list[Part]]) -> None:
    assert packed(commands) == b"".join(pack_command(tuple(command)) for command in commands)


@given(st.sampled_from([scripts.APPEND, scripts.SESSION_STATE]), KEYS, st.lists(PARTS))
def test_a_call_is_a_command_of_its_parts(script: scripts.Script, keys: tuple[bytes, ...], args: list[Part]) -> None:
    call = ScriptCall(script, keys, args)
    assert packed([call, ("PING",)]) == packed([("EVALSHA", script.sha, len(keys), *keys, *args), ("PING",)])
    assert packed([call.in_full()]) == packed([("EVAL", script.text, len(keys), *keys, *args)])


@pytest.mark.parametrize("part", [None, 1.5, bytearray(b"x")])
def test_what_has_no_one_form_is_not_sent(part: object) -> None:
    with pytest.raises(TypeError):
        packed([("SET", "a", part)])  # type: ignore[list-item]
