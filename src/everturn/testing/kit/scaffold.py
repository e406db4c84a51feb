"""Files for a project to start from (`everturn check --init`): a CI job, and a factory (see factory_text.py)."""

from __future__ import annotations

from pathlib import Path

JOB = """name: memory contract
on: [push, pull_request]
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - run: pip install -e . 'everturn[cli,test,servers]'
      - run: >-
          everturn check memory_target:factory --json contract.json --html contract.html
          --summary "$GITHUB_STEP_SUMMARY"
      - uses: actions/upload-artifact@v4
        if: always()
        with: {name: memory-contract, path: contract.*}
"""

TARGET, WORKFLOW = "memory_target.py", ".github/workflows/memory-contract.yml"


def write_start(folder: Path, factory: str) -> list[Path]:
    """Write the files. Raises FileExistsError, before anything is written, if one of them is there."""
    texts = {TARGET: factory, WORKFLOW: JOB}
    paths = [folder / name for name in texts]
    for path in paths:
        if path.exists():
            raise FileExistsError(f"{path} is there already; remove it, or begin in another directory")
    for path, text in zip(paths, texts.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return paths
