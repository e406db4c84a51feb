"""Tests of this folder start no process and open no connection; conftest.py sees to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.conftest import ImpureTest


def connect() -> None:
    with socket.socket() as line:
        line.connect(("127.0.0.1", 9))


@pytest.mark.parametrize(
    "impure",
    [
        lambda: subprocess.run([sys.executable, "-c", ""], check=False),
        lambda: os.fork() or os._exit(0),
        connect,
    ],
    ids=["process", "fork", "connection"],
)
def test_what_is_impure_is_refused_here(impure: Callable[[], Any]) -> None:
    with pytest.raises(ImpureTest, match="put the test elsewhere"):
        impure()
