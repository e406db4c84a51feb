"""Fetches dynoxide, a stand-in for DynamoDB with durable storage, by npm. Says so and goes on where that cannot be.

    python tools/fetch_dynoxide.py .venv/dynoxide/bin

Without it, the tests of DynamoDB run on ministack, and those that kill the server are skipped.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "1.2.1"
PACKAGES = {("Linux", "x86_64"): "@dynoxide/linux-x64"}


def fetch(folder: Path) -> str:
    """Put the program into a folder. Returns what became of it."""
    package = PACKAGES.get((platform.system(), platform.machine()))
    npm = shutil.which("npm")
    if package is None or npm is None:
        return "dynoxide is not fetched: " + ("npm is not here" if package else "this machine is not Linux on x86_64")
    with tempfile.TemporaryDirectory() as temporary:
        command = [npm, "pack", "--silent", f"{package}@{VERSION}"]
        packed = subprocess.run(command, cwd=temporary, capture_output=True, check=False, timeout=120)  # noqa: S603
        found = next(Path(temporary).glob("*.tgz"), None)
        if packed.returncode or found is None:
            return "dynoxide is not fetched: npm has no such package here"
        with tarfile.open(found) as archive:
            archive.extractall(temporary, filter="data")
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "dynoxide"
        shutil.copyfile(Path(temporary) / "package" / "dynoxide", program)
        program.chmod(0o755)
    return f"dynoxide {VERSION} is in {folder}"


if __name__ == "__main__":
    print(fetch(Path(sys.argv[1])))
