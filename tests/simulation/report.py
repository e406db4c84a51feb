"""Report on a schedule that failed: one line an event, and the findings at the end."""

from __future__ import annotations

from tests.simulation.world import Outcome


def report(outcome: Outcome) -> str:
    schedule = outcome.schedule
    lines = [f"{schedule.backend}, seed {schedule.seed}; timeout {schedule.timeout} s, ttl {schedule.ttl}"]
    lines += [f"{at:9.3f}  {who:10}  {what}" for at, who, what in outcome.story]
    lines += [f"{finding.at:9.3f}  {finding.kind.upper()}: {finding.text}" for finding in outcome.findings]
    return "\n".join(lines)
