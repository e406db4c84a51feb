"""Lines at the end of a run: artifacts that were written, and artifacts that no test uses any more.

Unused ones are listed only after a complete run; this module decides whether it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everturn.testing.golden import names
from everturn.testing.golden.database_plans import home_of
from everturn.testing.golden.pytest_run import LARGE, GoldenRun

_PARTIAL = ("keyword", "markexpr", "deselect", "lf", "stepwise", "ignore", "ignore_glob", "collectonly")


def _size(path: Path) -> str:
    size = path.stat().st_size if path.exists() else 0
    return f" ({size / LARGE:.1f} MiB: large for git)" if size > LARGE else ""


class RunSummary:
    """Collects facts during a run, and makes its last lines."""

    def __init__(self, run: GoldenRun) -> None:
        self.deselected = 0
        self._run = run
        self._is_complete = True
        self._modules: set[Path] = set()
        self._folders: set[Path] = set()  # whose tests were all collected

    def collected(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        config = session.config
        self._modules = {item.path for item in items}
        roots = [config.invocation_params.dir / arg for arg in config.args]
        self._folders = {
            folder
            for folder in {module.parent for module in self._modules}
            if any(root.is_dir() and folder.is_relative_to(root) for root in roots)
        }
        if any(config.getoption(option, default=None) for option in _PARTIAL) or any(
            "::" in arg for arg in config.args
        ):
            self._is_complete = False

    def finished(self, session: pytest.Session, exitstatus: int) -> None:
        if (
            exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
            or session.shouldstop
            or session.shouldfail
        ):
            self._is_complete = False

    def lines(self) -> list[str]:
        run = self._run
        said = [f"written: {run.shown(path)}{_size(path)}" for path in sorted(set(run.written))]
        unused = self._unused() if self._is_complete and not self.deselected else []
        if unused:
            said.append("no test uses these any more; delete them, if that is right:")
            said += [f"  {run.shown(path)}" for path in unused]
        return said

    def _unused(self) -> list[Path]:
        """Find unused artifacts in the folders of collected modules, and of modules that are gone."""
        folders = {names.module_folder(module) for module in self._modules}
        for folder in self._folders:
            alive = {names.module_folder(module) for module in folder.glob("*.py")}
            folders |= {each for each in (folder / names.FOLDER).glob("*/") if each not in alive}
        found = (path for folder in folders for path in folder.glob(f"*{names.SUFFIX}"))
        return sorted(path for path in found if path not in self._run.used and not self._may_be_used(path))

    def _may_be_used(self, path: Path) -> bool:
        """Whether it belongs to a test that did not finish, so that its use is not known."""
        home = home_of(path)
        return home in self._run.tests and home not in self._run.finished

    # --- to and from xdist's controller ------------------------------------------------------------------------------

    def to_controller(self) -> dict[str, Any]:
        return {
            "deselected": self.deselected,
            "is_complete": self._is_complete,
            "modules": sorted(map(str, self._modules)),
            "folders": sorted(map(str, self._folders)),
        }

    def from_worker(self, sent: dict[str, Any]) -> None:
        self.deselected += sent["deselected"]
        self._is_complete = self._is_complete and sent["is_complete"]
        self._modules |= set(map(Path, sent["modules"]))
        self._folders |= set(map(Path, sent["folders"]))
