"""Puts the files of examples/ on the docs site, so that its readers need no repository. `tools/build_docs.py` calls it.

A text file gets a page that shows it. The page of each example ends with a list of these, and an archive of them all.
Pages of docs/ are `build_docs.py`'s.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LANGUAGES = {".py": "python", ".toml": "toml", ".ini": "ini"}
LEFT_OUT = {"__pycache__", ".venv", ".pytest_cache", ".hypothesis", "build"}
FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # the archives of two builds are the same, byte for byte


def example_files(folder: Path) -> list[Path]:
    """Return the files of an example but for its README, in order."""
    files = [file for file in folder.rglob("*") if file.is_file() and not LEFT_OUT & set(file.parts)]
    return sorted(file for file in files if file != folder / "README.md" and file.suffix in (*LANGUAGES, ".sqlite"))


def file_pages() -> dict[Path, Path]:
    """Return every text file of the examples, and the place of the page that shows it."""
    files = [file for readme in ROOT.glob("examples/*/README.md") for file in example_files(readme.parent)]
    return {file: Path(f"{file.relative_to(ROOT)}.md") for file in files if file.suffix in LANGUAGES}


def file_page(file: Path) -> str:
    """Return the page that shows a file."""
    name = file.relative_to(ROOT).as_posix()
    example = name.split("/")[1]
    up = "../" * (name.count("/") - 1)
    code = file.read_text("utf-8")
    fence = "````" if "```" in code else "```"
    about = f"A file of [examples/{example}]({up}{example}.md), which has all of them in one archive."
    return f"# {name}\n\n{about}\n\n{fence}{LANGUAGES[file.suffix]}\n{code.rstrip()}\n{fence}\n"


def list_of_files(folder: Path) -> str:
    """Return the end of an example's page: its files and their archive. Links lead as they would in its README."""
    files = [file for file in example_files(folder) if file.suffix in LANGUAGES]
    links = "\n".join(f"- [{name}]({name})" for name in (file.relative_to(folder).as_posix() for file in files))
    archive = f'<a href="{folder.name}.zip">{folder.name}.zip</a>'
    return f"\n## The files\n\n{links}\n\nAll of them, ready to run: {archive}.\n"


def write_archive(folder: Path, target: Path) -> None:
    """Write all files of an example into one archive, below the example's name."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in [folder / "README.md", *example_files(folder)]:
            entry = zipfile.ZipInfo(file.relative_to(folder.parent).as_posix(), FIRST_DAY)
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
