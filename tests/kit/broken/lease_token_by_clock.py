"""The token of a lease is the time at which it was taken, in minutes: two leases have the same one."""

from __future__ import annotations

import time

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("lease",)


class Broken(ResumingCore):
    def next_token(self, before: int) -> int:
        return int(time.time()) // 60


factory = made(Broken)
