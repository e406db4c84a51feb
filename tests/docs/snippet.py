"""Code of a page, run as `python -W error -c` runs it, in a child that is forked with the page's imports made.

A page's own imports run in the child, too, and find what is there: a Python of its own would take a quarter of a second
for ours, and seconds for a framework.
"""

from __future__ import annotations

import ast
import os
import sys
import types
import warnings
from pathlib import Path

from tests.integration.children import children

PYTHONS_FILTERS = {
    ("default", DeprecationWarning),
    *(("ignore", kind) for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)),
}


def imports(code: str) -> tuple[str, ...]:
    """Modules that the code imports, in their order."""
    found: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            found.append(node.module)
    return tuple(dict.fromkeys(found))


def run_code(code: str, folder: str) -> None:
    """Run in the child."""
    os.chdir(folder)
    sys.path.insert(0, "")
    sys.argv = ["-c"]
    # After `-W error`, filters that libraries add when they are imported come first, and Python's own do not count.
    warnings.filters[:] = [each for each in warnings.filters if (each[0], each[2]) not in PYTHONS_FILTERS]  # type: ignore[index]
    warnings.simplefilter("error", append=True)
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(code, "<string>", "exec"), vars(main))


def run(code: str, folder: Path) -> str:
    """Run code in a folder. Returns what it printed; fails if it fails or hangs."""
    with children((run_code, code, folder), imports=imports(code)) as (child,):
        return child.finished()
