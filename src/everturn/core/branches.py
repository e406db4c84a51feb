"""Answers questions about paths without walking them, by the stretches of a log between its jumps.

Pure. A log that was edited n times has n stretches. A question about one path costs log n steps, and a question about
all paths together n steps. (paths.path walks one path: most reads need just that.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence

Range = tuple[int, int]  # first and last seq, both included
Jump = tuple[int, int]  # (seq, after): the entry `seq` follows the entry `after`


class Branches:
    """The stretches of a log: each begins with a jump (the first one with the log) and ends before the next jump.

    `firsts` are their first seqs, in order; `afters` the entries that those follow, and `parents` the stretches these
    lie in. A parent always comes before its children.
    """

    def __init__(self, jumps: Iterable[Jump]) -> None:
        self.firsts: list[int] = [0]
        self.afters: list[int] = [0]
        self.parents: list[int] = [0]
        # Skip pointers, as in a skew-binary list: each stretch knows one that is further back, and where the path
        # enters it. By these and the parents any stretch of a path is found in log n steps.
        self._skips: list[int] = [0]
        self._entries: list[int] = [0]
        depths = [0]
        for seq, leads_to in sorted(jumps):
            after = min(max(leads_to, 0), seq - 1)  # no way round in a circle by a damaged jump; verify reports it
            parent = self.stretch_of(after)
            skip = self._skips[parent]
            far = self._skips[skip]
            if parent and depths[parent] - depths[skip] == depths[skip] - depths[far]:
                self._skips.append(far)
                self._entries.append(self._entries[skip])
            else:
                self._skips.append(parent)
                self._entries.append(after)
            self.firsts.append(seq)
            self.afters.append(after)
            self.parents.append(parent)
            depths.append(depths[parent] + 1)

    def stretch_of(self, seq: int) -> int:
        """Find the number of the stretch that holds this seq."""
        return max(0, bisect_right(self.firsts, seq) - 1)

    def nearest(self, head: int, seq: int) -> int:
        """Find the last entry up to `seq` on the path to `head`; 0 if there is none."""
        stretch, at = self.stretch_of(head), head
        while stretch and self.firsts[stretch] > seq:
            if self.firsts[self._skips[stretch]] > seq:
                stretch, at = self._skips[stretch], self._entries[stretch]
            else:
                stretch, at = self.parents[stretch], self.afters[stretch]
        return min(at, seq)

    def tally(self, seqs: Sequence[int]) -> Callable[[int], int]:
        """Make a function that counts, for a head, how many of these seqs (given in order) are on the path to it."""
        before = [0]  # those on the path before each stretch

        def count(head: int) -> int:
            stretch = self.stretch_of(head)
            here = bisect_right(seqs, head) - bisect_left(seqs, self.firsts[stretch])
            return before[stretch] + max(0, here)

        for after in self.afters[1:]:
            before.append(count(after))  # noqa: PERF401 - each needs those before it
        return count

    def gaps(self, ranges: Sequence[Range]) -> Callable[[int], int]:
        """Make a function that finds, for a head, the last seq on its path that is in none of these ranges (0: none).

        The ranges are in order, and do not touch each other.
        """
        starts = [first for first, _ in ranges]
        before = [0]

        def gap(head: int) -> int:
            at = bisect_right(starts, head) - 1
            if at < 0 or ranges[at][1] < head:
                return head
            stretch = self.stretch_of(head)
            return before[stretch] if starts[at] <= max(1, self.firsts[stretch]) else starts[at] - 1

        for after in self.afters[1:]:
            before.append(gap(after))  # noqa: PERF401 - each needs those before it
        return gap
