"""Files for a project to start from (`everturn check --init`): a factory, and a CI job. factory_text.py writes the
factory of a store that was named; without a name it is one to fill in."""

from __future__ import annotations

from pathlib import Path

FACTORY = '''"""Points the contract kit at our memory store: everturn check memory_target:factory"""

from pathlib import Path


def factory(where: Path):
    """Open the store at `where`, a fresh directory. Called again, also in other processes, with the same one.

    Ask for more by name, and more is tested: session_id (one object per session), redis_url or postgres_url (a private
    server that the kit starts, and breaks), ttl, timeout, vfs.
    """
    raise NotImplementedError("open your store here, and return it")


# More attributes that the kit reads; `everturn docs contract` says where the list is.
# factory.share_threads = True     one instance may be used by several threads
# factory.processes = False        it lives in memory, and in one process, by nature
# factory.message = MyMessage      called with role and content, makes what the store takes
'''

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


def write_start(folder: Path, factory: str = FACTORY) -> list[Path]:
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
