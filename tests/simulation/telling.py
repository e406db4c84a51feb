"""Tells a schedule that failed as a story: one line an event, and what is wrong with it at the end."""

from __future__ import annotations

from tests.simulation.world import Outcome


def told(outcome: Outcome) -> str:
    schedule = outcome.schedule
    lines = [f"{schedule.backend}, seed {schedule.seed}; timeout {schedule.timeout} s, ttl {schedule.ttl}"]
    lines += [f"{at:9.3f}  {who:10}  {what}" for at, who, what in outcome.story]
    lines += [f"{finding.at:9.3f}  {finding.kind.upper()}: {finding.text}" for finding in outcome.findings]
    return "\n".join(lines)
