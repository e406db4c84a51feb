"""Clauses of texts that a store could take for its own: transcripts, separators, marks of an encoding; long texts that
are not ASCII. edge.py has the others.
"""

from __future__ import annotations

from everturn.testing.contract.edge import filler, round_trip
from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit

registry = ClauseRegistry("edge", since=2)

TRANSCRIPTS = (
    *("\n\nHuman: hi\n\nAssistant: ok", "User: x\nAI: y", "\n\nUSER: x", "\nassistant: y", "system: be rude", "AI: "),
    *("<|im_start|>user\nhi<|im_end|>", "[INST] hi [/INST]", "<message role='user'>hi</message>", "]]>", "<!-- -->"),
    *("---\nrole: user\n---\nhi", "### user\nhi", "# Human\n\nhi", "- user: hi", "> hi", "```json\n{}\n```", "\n---\n"),
)
SEPARATORS = (
    *("|", "||", "|||", ",", ";", ":", "::", "\t", "a\tb", "###", "%%", "\x1e", "\x1f", "a\x1eb\x1fc", "\x1d\x1c"),
    *(
        "\r\n\r\n",
        "--boundary\r\n",
        "data: {}\n\n",
        "$3\r\nabc\r\n",
        "*1\r\n$4\r\nPING\r\n",
        "\\|",
        "a\\",
        '"',
        "'",
        "\\",
    ),
)
MARKS = (
    *("gz:aGk=", "gzip:aGk=", "zlib:eJw=", "b64:aGk=", "base64:aGk=", "base64,aGk=", "json:{}", "enc:v1:aGk=", "aGk="),
    *("s3://bucket/key", "blob:7", "ref:7", "file:///none", "data:text/plain;base64,aGk=", "!!python/object:a.B {}"),
    *(
        "__deleted__",
        "<deleted>",
        "[deleted]",
        "__none__",
        "undefined",
        "N/A",
        "[DONE]",
        "<EOF>",
        "\x1f\x8b\x08",
        "x\x9c",
    ),
)


@registry.clause(
    "looks-like-history",
    "Text that looks like a transcript, a separator or a mark of an encoding comes back as text, or is refused.",
    incident="A history kept as 'Human: ...', 'AI: ...': a user pastes an old chat, and the model takes it for this.",
)
def looks_like_history(kit: Kit) -> None:
    contents = ["before", *TRANSCRIPTS, *SEPARATORS, *MARKS, "after"]
    round_trip(kit, contents, "text that looks like a history or an encoding", may_refuse=True)


_LETTERS = str.maketrans("0123456789abcdef ", "é€😀ß漢字한Ωж\u0301ñ🏳अ中ü\u05d0\u2003")


@registry.clause(
    "long-unicode",
    "Long texts that are not ASCII come back whole, wherever a store may cut them into pieces.",
    incident="Pieces of 4,096 bytes, decoded one by one with errors='replace': a question mark in each long answer.",
)
def long_unicode(kit: Kit) -> None:
    sizes = (700, 3_000, 30_000) if kit.quick else (90, 700, 3_000, 12_000, 30_000, 120_000)
    # One byte more in front of each: a cut at any multiple of bytes falls into a character in most of them.
    contents = ["x" * shift + filler(size, "").translate(_LETTERS) for size in sizes for shift in range(4)]
    round_trip(kit, contents, "a long text that is not ASCII", may_refuse=True, large=True)


PRIVATE = (
    *(
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "378282246310005",
        "my order is 2026111900001234",
    ),
    *(
        "ada@example.com",
        "+49 170 1234567",
        "(555) 010-0199",
        "078-05-1120",
        "DE89 3704 0044 0532 0130 00",
        "2001:db8::1",
    ),
    *("192.0.2.17", "sk-abcdefghijklmnopqrstuvwx", "Bearer abc.def.ghi", "password: hunter2", "AKIAIOSFODNN7EXAMPLE"),
    *("-----BEGIN PRIVATE KEY-----", "https://ada:secret@example.com/", "eyJhbGciOiJIUzI1NiJ9.e30.c2ln", "damn"),
)


@registry.clause(
    "looks-private",
    "Text that looks like a card number, an address, a password or a key comes back as it was, or is refused.",
    incident="Sixteen digits are masked as a card before they are stored: so is the order number that the agent needs.",
)
def looks_private(kit: Kit) -> None:
    round_trip(kit, ["before", *PRIVATE, "after"], "text that looks private", may_refuse=True)
