"""The database files of one test: where each starts, when it is compared, and which artifacts are written at the end.

The inspector process opens the files; fixture.py is the public side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from everturn.testing.golden import names
from everturn.testing.golden.database_plans import DatabasePlan, TestPlan
from everturn.testing.golden.errors import GoldenError, SnapshotMismatch
from everturn.testing.golden.masks import Mask
from everturn.testing.golden.pytest_run import GoldenRun


@dataclass(frozen=True)
class _PendingArtifact:
    """A file that becomes an artifact when the test has passed."""

    file: Path
    artifact: Path
    masks: tuple[Mask, ...]


class DatabaseFile:
    """One SQLite file of a test, and the artifacts that it is compared with."""

    def __init__(self, run: GoldenRun, test: TestPlan, folder: Path, *, name: str) -> None:
        self.masks: list[Mask] = []
        self._run = run
        self._test = test
        self._name = name
        self._plan = test.databases.get(name, DatabasePlan())
        self._folder = folder
        self._file: Path | None = None
        self._stages: dict[str, str] = {}
        self._drafts: list[_PendingArtifact] = []

    @property
    def is_used(self) -> bool:
        return self._file is not None or self._plan.start is not None

    def path(self) -> Path:
        """Get the file; at the first call, make it as a copy of its start. Raises GoldenError if that fails."""
        if self._file is None:
            file = self._folder / f"{self._name or 'snapshot_db'}{names.SUFFIX}"
            if self._plan.start is not None:
                self._run.inspector.provide(self._run.ready(self._plan.start, self._plan), file)
            self._file = file
        return self._file

    def check(self, stage: str) -> None:
        """Compare with the artifact of a stage ("": the end of the test), or draft it. Raises SnapshotMismatch."""
        artifact = self._artifact(stage)
        self._run.used.add(artifact)
        if not self.path().exists():
            raise SnapshotMismatch(f"there is no file to compare: nobody made {self._called}.path, {self.path()}")
        if self._run.is_updating:
            self._draft(artifact)
        else:
            self._compare(artifact, f"{self._called}, {stage!r}," if stage else self._called)

    def drafts(self) -> list[_PendingArtifact]:
        return self._drafts

    def _artifact(self, stage: str) -> Path:
        artifact = names.artifact(self._test.folder, test=self._test.test, database=self._name, stage=stage)
        key = names.same_file_key(artifact)
        if key in self._stages:
            raise GoldenError(
                f"two checks would write one artifact, {artifact.name}: {self._stages[key]!r} and {stage!r}. "
                "Give each check of a test a name of its own"
            )
        self._stages[key] = stage
        return artifact

    def _draft(self, artifact: Path) -> None:
        draft = self._folder / f"draft-{self._name}-{len(self._drafts)}{names.SUFFIX}"
        self._run.inspector.take(self.path(), draft, foreign_keys=self._plan.foreign_keys)
        self._drafts.append(_PendingArtifact(draft, artifact, self._all_masks))

    def _compare(self, artifact: Path, what: str) -> None:
        run = self._run
        if not artifact.exists():
            raise SnapshotMismatch(f"{what} has no artifact {run.shown(artifact)} yet: {run.how_to_update}")
        wrong = run.inspector.judge(artifact, self.path(), self._all_masks, foreign_keys=self._plan.foreign_keys)
        if wrong:
            raise SnapshotMismatch(
                f"{what} is not what {run.shown(artifact)} says:\n{wrong}\n\n"
                f"all of it: everturn golden diff {run.shown(artifact)} {self.path()}\n"
                f"if it is right as it is now: {run.how_to_update}"
            )

    @property
    def _all_masks(self) -> tuple[Mask, ...]:
        return (*self._plan.masks, *self.masks)

    @property
    def _called(self) -> str:
        return f"snapshot_db[{self._name!r}]" if self._name else "snapshot_db"


class DatabasesOfTest:
    """The database files of a test, by name; "" is the unnamed one."""

    def __init__(self, run: GoldenRun, plan: TestPlan, folder: Path) -> None:
        self.plan = plan
        self._run = run
        self._folder = folder
        self._files: dict[str, DatabaseFile] = {}

    def file(self, name: str) -> DatabaseFile:
        if name not in self._files:
            self._files[name] = DatabaseFile(self._run, self.plan, self._folder, name=name and names.given(name))
        return self._files[name]

    def begin(self) -> None:
        """Make every file for which a mark names a start. Raises GoldenError if one cannot be made."""
        for name in self.plan.databases:
            if self.file(name).is_used:
                self.file(name).path()

    def finish(self) -> None:
        """Compare every file; in an update, write missing and changed ones. Raises GoldenError, SnapshotMismatch."""
        used = [file for file in self._files.values() if file.is_used]
        if not used:
            raise GoldenError(
                "the test has snapshot_db and did nothing with it, so there is nothing to compare: "
                "let it work on the file snapshot_db.path"
            )
        for file in used:
            file.check("")
        for draft in self._all_drafts(used):
            self._run.write_artifact(draft.file, draft.artifact, draft.masks)

    @staticmethod
    def _all_drafts(files: list[DatabaseFile]) -> Iterator[_PendingArtifact]:
        for file in files:
            yield from file.drafts()
