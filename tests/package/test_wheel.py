"""The wheel and the sdist as they are built: contents, metadata, and the README as an index shows it. Offline."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

import everturn

ROOT = Path(__file__).parents[2]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
REPOSITORY, SITE = URLS["Repository"], URLS["Documentation"]
RAW = REPOSITORY.replace("//github.com/", "//raw.githubusercontent.com/") + "/main/"
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)|<(?:img|a)\s[^>]*(?:src|href)=\"([^\"]+)\"")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel and an sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def links(text: str) -> Iterator[tuple[bool, str]]:
    """Yield every address in a README, and whether it is a picture."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for bang, address, html in LINK.findall(without_code):
        yield bool(bang), address or html


def test_every_link_of_the_description_leads_somewhere_from_any_page(metadata: Message) -> None:
    """An index shows the README without the repository around it: an address must be whole, and ours must be there."""
    description = str(metadata.get_payload(decode=True), "utf-8")
    found = list(links(description))
    assert len(found) > 20
    wrong = []
    for is_picture, address in found:
        page, _, anchor = address.partition("#")
        if page.startswith(RAW):
            file = ROOT / page.removeprefix(RAW)
        elif page.startswith(f"{REPOSITORY}/blob/main/"):
            file = ROOT / page.removeprefix(f"{REPOSITORY}/blob/main/")
        elif page.startswith(f"{SITE}/"):
            path = re.sub(r"(^|/)index\.html$", r"\1README.html", page.removeprefix(f"{SITE}/"))
            file = ROOT / "docs" / re.sub(r"\.html$", ".md", path)
        else:
            wrong += [address] * (not address.startswith("https://") or is_picture)
            continue
        titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE) if anchor and file.exists() else []
        if not file.exists() or (anchor and anchor not in {slug(title) for title in titles}):
            wrong.append(address)
    assert wrong == []
    assert [address for is_picture, address in found if is_picture] == [f"{RAW}docs/images/try.svg"]


def slug(title: str) -> str:
    return re.sub(r"[^\w-]+", "-", title.lower()).strip("-")


def test_a_relative_link_would_be_found() -> None:
    assert list(links('[a](docs/b.md) ![c](d.svg) <img src="e.png">')) == [
        (False, "docs/b.md"),
        (True, "d.svg"),
        (False, "e.png"),
    ]


def test_the_library_needs_two_packages(metadata: Message) -> None:
    needed = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert sorted(re.split(r"[^\w-]", need)[0] for need in needed) == ["apsw", "msgspec"]


def test_every_extra_is_in_the_docs_and_the_other_way_round(metadata: Message) -> None:
    page = (ROOT / "docs/start/install.md").read_text("utf-8")
    named = {extra for group in re.findall(r"everturn\[([\w,-]+)\]", page) for extra in group.split(",")}
    assert named == set(metadata.get_all("Provides-Extra", []))


def test_the_metadata_says_what_it_is(metadata: Message) -> None:
    classifiers = metadata.get_all("Classifier", [])
    versions = [name.rpartition(" ")[2] for name in classifiers if re.search(r":: 3\.\d+$", name)]
    assert versions == ["3.11", "3.12", "3.13", "3.14", "3.15"]
    assert {"Framework :: Pytest", "Framework :: AsyncIO", "Typing :: Typed"} <= set(classifiers)
    assert metadata["Version"] == everturn.__version__
    named = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert named.keys() >= {"Homepage", "Documentation", "Repository", "Issues", "Changelog"}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = ROOT / "src"
    there = {
        file.relative_to(package).as_posix()
        for file in (package / "everturn").rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    assert inside == there
    assert {"everturn/py.typed", "everturn/backends/redis/lua/append.lua"} <= inside


def test_no_benchmark_of_another_store_is_in_the_wheel(wheel: Path) -> None:
    peers = re.compile(
        r"^\s*(?:from|import) (agents|google|langchain\w*|langgraph|llama_index|sqlalchemy)\b", re.MULTILINE
    )
    with zipfile.ZipFile(wheel) as archive:
        benches = [name for name in archive.namelist() if name.startswith("everturn/bench/")]
        found = [name for name in benches if peers.search(archive.read(name).decode())]
    assert benches
    assert found == []


def test_the_sdist_can_be_built_and_tested_from(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "Makefile",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "requirements/dev.txt",
        "src/everturn/py.typed",
    } <= names
    assert [name for name in names if name.startswith((".venv", "build/", "dist/", ".hypothesis"))] == []


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, and with nothing but what the wheel needs by itself."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin/python"
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    for name in ("apsw", "msgspec"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        (source,) = map(Path, spec.submodule_search_locations)
        (packages / source.name).symlink_to(source)
        information = Path(str(distribution(name).locate_file(""))).glob(f"{name}-*.dist-info")
        for one in information:
            (packages / one.name).symlink_to(one)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    done = subprocess.run([*install, str(wheel)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return python


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False, timeout=60)


def test_the_library_works_with_its_two_packages_alone(bare: Path, tmp_path: Path) -> None:
    code = """
import everturn
with everturn.open("sqlite:///memory.db") as store:
    store.save_context("a", "hello", "hi")
    store.rollback_to_snapshot("a", store.save_snapshot("a"))
    assert store.load_memory("a") == [{"human": "hello", "ai": "hi"}]
    assert store.verify().ok
import asyncio
async def main():
    async with await everturn.open_async("sqlite:///memory.db") as store:
        assert len(await store.get_history("a")) == 2
asyncio.run(main())
from everturn import testing
from everturn.testing import history, report, results, servers
for scheme, extra in [("redis", "redis"), ("postgresql", "postgres")]:
    try:
        everturn.open(f"{scheme}://localhost")
    except everturn.Unsupported as error:
        assert f"pip install 'everturn[{extra}]'" in str(error), error
print(everturn.__file__)
"""
    done = ran([str(bare), "-W", "error", "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(bare.parents[1])


@pytest.mark.parametrize("how", ["script", "module"])
def test_without_its_extra_the_command_says_what_to_install(how: str, bare: Path, tmp_path: Path) -> None:
    command = [str(bare.with_name("everturn"))] if how == "script" else [str(bare), "-m", "everturn"]
    done = ran([*command, "--version"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "everturn: the command needs typer: pip install 'everturn[cli]'\n"
