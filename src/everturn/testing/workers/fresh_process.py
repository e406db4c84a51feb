"""Takes steps in a fresh `python -c`: a process that is not forked from the kit's, and imports the target by name."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from everturn.testing.kit.clause import Untested
from everturn.testing.kit.target import Target
from everturn.testing.workers.messages import Open, Outcome, Step

_SCRIPT = "from everturn.testing.workers.fresh_process import main; main()"


def take_in_fresh_process(target: Target, opening: Open, steps: Sequence[Step], patience: float) -> tuple[Outcome, ...]:
    """Open an instance in a new Python, take the steps, close it. Raises Untested if that does not end."""
    with tempfile.TemporaryDirectory(prefix="everturn-plain-") as folder:
        job, answer = Path(folder, "job"), Path(folder, "answer")
        job.write_bytes(pickle.dumps(([str(Path.cwd()), *sys.path], target, opening, tuple(steps), str(answer))))
        with job.open("rb") as given:
            try:
                done = subprocess.run(  # noqa: S603 - our own script
                    [sys.executable, "-c", _SCRIPT], stdin=given, capture_output=True, timeout=patience, check=False
                )
            except subprocess.TimeoutExpired:
                raise Untested(f"a plain process had not ended after {patience:.1f} s") from None
        if done.returncode != 0:
            raise Untested(f"a plain process failed: {done.stderr.decode(errors='replace')[-500:]}")
        outcomes: tuple[Outcome, ...] = pickle.loads(answer.read_bytes())  # noqa: S301 - written by our own script
        return outcomes


def main() -> None:
    """Run in the fresh process: read the job from stdin, write the outcomes to a file."""
    from everturn.testing.kit.target import load, offer_of
    from everturn.testing.servers.dynamodb import take_credentials
    from everturn.testing.workers.fake_model import FakeModel
    from everturn.testing.workers.instance import LocalInstance, Loop

    path, target, opening, steps, answer = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - from our own parent
    sys.path[:0] = [entry for entry in path if entry not in sys.path]
    factory = load(target)
    take_credentials(opening.options)
    instance = LocalInstance(factory, offer_of(factory), Path(opening.where), opening.options, Loop(), FakeModel())
    outcomes = tuple(map(instance.taken, steps))
    instance.close()
    Path(answer).write_bytes(pickle.dumps(outcomes))
