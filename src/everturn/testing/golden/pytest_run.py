"""The state of snapshot_db in one pytest process: whether it updates, artifacts written and used, results of tests.

With xdist, workers send theirs to the controller.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import pytest

from everturn.testing.golden import names, options, subprocesses
from everturn.testing.golden.database_plans import DatabasePlan, StartingFile, home_of
from everturn.testing.golden.errors import GoldenError
from everturn.testing.golden.inspector import InspectorProcess
from everturn.testing.golden.masks import Mask
from everturn.testing.golden.ordering import ArtifactOrdering


class GoldenRun:
    """The state of a run. Paths are shown relative to the directory where pytest was started."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.is_updating = options.is_updating(config)
        self.inspector = InspectorProcess()
        self.ordering = ArtifactOrdering(())
        self.written: list[Path] = []
        self.used: set[Path] = set()
        # Tests, by their homes.
        self.tests: set[Path] = set()
        self.finished: set[Path] = set()  # their artifacts are written
        self.skipped: set[Path] = set()
        self.failed: set[Path] = set()
        self._built: dict[Path, GoldenError | None] = {}

    def shown(self, path: Path) -> str:
        """Show a path as one would type it."""
        here = self._config.invocation_params.dir
        return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

    @property
    def how_to_update(self) -> str:
        if options.is_update_withheld(self._config):
            withheld = f"{options.FLAG} writes nothing where CI is set, unless {options.CI_FLAG} is given too"
            return f"{withheld}. Run it on your machine, look at it, and commit it"
        return f"run pytest with {options.FLAG} to write it, look at it, and commit it"

    # --- starts ------------------------------------------------------------------------------------------------------

    def ready(self, start: StartingFile, plan: DatabasePlan) -> Path:
        """Get the artifact of a start. Raises GoldenError if it is missing or out of date, and says how to get it."""
        self.used.add(start.artifact)
        if self.is_updating:
            if start.build is not None:
                self._build(start, plan)
            else:
                self._refuse_outdated(start)
        if not start.artifact.exists():
            raise GoldenError(
                f"there is no {self.shown(start.artifact)}, which the test starts from: {self._source(start)}"
            )
        return start.artifact

    def _source(self, start: StartingFile) -> str:
        if start.build is not None or self.ordering.writer(start.artifact) is not None:
            return self.how_to_update
        if start.is_test:
            beside = sorted(start.artifact.parent.glob(f"{start.artifact.stem}*{names.SUFFIX}"))
            near = f" (there is {', '.join(path.stem for path in beside)})" if beside else ""
            return f"it is the artifact of a test that is not in this run{near}; run that one with {options.FLAG}"
        return "put a SQLite file there, or have it made: build= takes a function"

    def _refuse_outdated(self, start: StartingFile) -> None:
        """Raise GoldenError if a test of this run should have written the start first, and has not."""
        writer, home = self.ordering.writer(start.artifact), home_of(start.artifact)
        if writer is None or home in self.finished or home in self.skipped:
            return
        if home in self.failed:
            raise GoldenError(f"not updated: {writer}, which writes what it starts from, did not pass")
        raise GoldenError(
            f"not updated: {writer}, which writes what it starts from, has not run yet. "
            "Something changed the order of the tests after everturn had put them right: run without it (-p no:...)"
        )

    def _build(self, start: StartingFile, plan: DatabasePlan) -> None:
        if start.artifact not in self._built:
            try:
                self._build_once(start, plan)
                self._built[start.artifact] = None
            except GoldenError as exc:
                self._built[start.artifact] = exc
        error = self._built[start.artifact]
        if error is not None:
            raise error

    def _build_once(self, start: StartingFile, plan: DatabasePlan) -> None:
        if start.build is None:
            raise AssertionError("only a start with a function is built")
        name = getattr(start.build, "__qualname__", repr(start.build))
        with tempfile.TemporaryDirectory(prefix="everturn-build-") as folder:
            made, draft = Path(folder) / f"made{names.SUFFIX}", Path(folder) / f"draft{names.SUFFIX}"
            try:
                subprocesses.run(start.build, (made,), {}, timeout=subprocesses.TIMEOUT)
            except GoldenError:
                raise
            except Exception as exc:
                notes = "\n".join(getattr(exc, "__notes__", ()))
                raise GoldenError(f"build={name} failed: {type(exc).__name__}: {exc}\n{notes}") from exc
            if not made.exists():
                raise GoldenError(f"build={name} made no file: it is called with the path of the file to make")
            self.inspector.take(made, draft, foreign_keys=plan.foreign_keys)
            self.write_artifact(draft, start.artifact, plan.masks)

    def write_artifact(self, draft: Path, artifact: Path, masks: tuple[Mask, ...]) -> None:
        """Write an artifact if it is missing or differs. Warns if it is large."""
        written = self.inspector.write_artifact(draft, artifact, masks)
        if written.is_written:
            self.written.append(artifact)
            if written.size > LARGE:
                _warn_of_size(self.shown(artifact), written.size)

    # --- to and from xdist's controller ------------------------------------------------------------------------------

    def to_controller(self) -> dict[str, list[str]]:
        return {name: sorted(map(str, getattr(self, name))) for name in _SENT}

    def from_worker(self, sent: dict[str, list[str]]) -> None:
        self.written += map(Path, sent["written"])
        for name in _SENT[1:]:
            getattr(self, name).update(map(Path, sent[name]))


_SENT = ("written", "used", "tests", "finished")
LARGE = 1 << 20


class LargeArtifactWarning(pytest.PytestWarning):
    """An artifact is large, and git keeps every version of it."""


def _warn_of_size(artifact: str, size: int) -> None:
    text = f"{artifact} has {size / LARGE:.1f} MiB; git keeps every version of it. Test with fewer rows, or use git lfs"
    try:
        warnings.warn(text, LargeArtifactWarning, stacklevel=2)
    except LargeArtifactWarning:
        pass  # where warnings are errors: it is written, and the test passes; the summary shows its size
