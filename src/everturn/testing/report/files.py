"""The report as a JSON file: writes it, and reads it back."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from everturn.testing.results import REPORT_FORMAT, RunReport

_decode = msgspec.json.Decoder(RunReport).decode
_IN_FORMAT_1 = {"pass": "holds", "fail": "broken"}  # statuses by their names of then


class BadReport(ValueError):
    """A file is not a report, or has a later format than this version reads."""


def write_json(report: RunReport, path: str | os.PathLike[str]) -> None:
    """Write the report as JSON, replacing the file. Raises OSError."""
    Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def read_json(path: str | os.PathLike[str]) -> RunReport:
    """Read a report that `write_json` wrote, in this format or an earlier one. Fields of later versions are ignored.
    Raises BadReport, OSError."""
    try:
        report = _decode(_in_this_format(Path(path).read_bytes()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise BadReport(f"{path}: not a report of `everturn check --json` ({error})") from error
    if report.report_format > REPORT_FORMAT:
        raise BadReport(
            f"{path}: report format {report.report_format}; this everturn reads up to {REPORT_FORMAT}; upgrade it"
        )
    return report


def _in_this_format(written: bytes) -> bytes:
    found = msgspec.json.decode(written)
    if not isinstance(found, dict) or found.get("report_format") != 1:
        return written
    for clause in found.get("clauses", ()):
        clause["status"] = _IN_FORMAT_1.get(clause["status"], clause["status"])
    counts = found.get("counts", {})
    found["counts"] = {_IN_FORMAT_1.get(status, status): number for status, number in counts.items()}
    return msgspec.json.encode(found | {"report_format": REPORT_FORMAT})
