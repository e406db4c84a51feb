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


MARKUP = (
    *("<script>alert(1)</script>", "<b>bold</b>", "a <i>b</i> c", "<think>hm</think>yes", "<!DOCTYPE html>", "</div>"),
    *("<img src=x onerror=y>", "<https://example.org>", "a < b > c", "<tool_call>{}</tool_call>", "<br/>", "<?php"),
    *("**bold**", "_a_", "# title", "`code`", "~~a~~", "[a](b)", "![a](b)", "* a", "1. a", "\\(x\\)", "$x$", "a  \nb"),
    *("100%25", "%41", "%0A", "a+b", "=41", "=?utf-8?q?a?=", "&#x41;", "&nbsp;", "+AGE-", "xn--a", "U+0041", "\\101"),
    *(":smile:", ":)", "<3", "(c)", "--", "...", "->", "1/2", "TODO", "@everyone", "/reset", "#channel", "{{name}}"),
)
CODE_POINTS = (
    *("\ufeffa", "a\ufeff", "a\ufeffb", "\ufffe", "\uffff", "\ufdd0", "\U0001fffe", "\U0010ffff", "\ufffd", "\ufffc"),
    *("\ue000", "\uf8ff", "\U000f0000", "\xada", "soft\xadhyphen", "\u2060", "\u180e", "\u034f", "\u061c", "\u115f"),
    *(
        "\u201cquoted\u201d",
        "it\u2019s",
        "a\u2026",
        "a\u2014b",
        "a\u2011b",
        "\xabb\xbb",
        "\u2212",
        "\xd7",
        "\xb5",
        "\u03bc",
    ),
    *("\x7f", "\x80", "\x9f", "\x1b[31mred\x1b[0m", "\x07", "\x08", "\x01", "\x0e", "a\x0bb", "a\x0cb"),
    *("\u0130", "\u0131", "\xdf", "\u1e9e", "\u03c2", "\ufb03", "\u2126", "\u212b", "\uac00", "\u1100\u1161", "\u0e33"),
    *(
        "\U000e0041",
        "\U0001f1e9\U0001f1ea",
        "\u2764\ufe0f",
        "\u2764\ufe0e",
        "\U0001f44d\U0001f3fd",
        "e\u0301\u0323",
        "\U00020000",
    ),
)


@registry.clause(
    "looks-like-markup",
    "Text that looks like HTML, Markdown, an encoding or a smiley comes back letter for letter, or is refused.",
    incident="Tags are cleaned out before a message is stored: the code that the user asked about has holes.",
)
def looks_like_markup(kit: Kit) -> None:
    round_trip(kit, ["before", *MARKUP, "after"], "text that looks like markup", may_refuse=True)


@registry.clause(
    "odd-code-points",
    "Byte order marks, noncharacters, private letters, soft hyphens and quotes come back as they were, or are refused.",
    incident="Typographic quotes made plain 'for the model': a signature over what the user had signed fails.",
)
def odd_code_points(kit: Kit) -> None:
    round_trip(kit, ["before", *CODE_POINTS, "after"], "an odd code point", may_refuse=True)
