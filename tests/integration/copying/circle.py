"""Each backend once as the source, and once as the target: for what does not hang on which two they are."""

from __future__ import annotations

import pytest

in_a_circle = pytest.mark.parametrize(
    ("source", "target"),
    [
        ("sqlite-file", "valkey"),
        ("valkey", "postgres"),
        ("postgres", "cluster"),
        ("cluster", "dynamodb"),
        ("dynamodb", "sqlite-file"),
    ],
    indirect=True,
)
