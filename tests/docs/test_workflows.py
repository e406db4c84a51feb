"""The workflows in .github: each step is a make target that runs on a desk as well, actions are pinned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
CLASSIFIERS = re.findall(r":: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text("utf-8"))


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text("utf-8"))


def jobs(file: Path) -> Iterator[dict[str, Any]]:
    yield from read(file)["jobs"].values()


def steps(file: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for job in jobs(file):
        yield from ((job, step) for step in job["steps"])


def test_there_are_workflows() -> None:
    assert [file.stem for file in WORKFLOWS] == ["deep", "release", "test"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_every_step_is_a_make_target(file: Path) -> None:
    for job, step in steps(file):
        if "run" not in step:
            continue
        words = step["run"].split()
        assert words[0] == "make"
        assert "\n" not in step["run"].strip()
        target = words[1].strip('"')
        named = job["strategy"]["matrix"]["part"] if target == "$PART" else [target]
        assert set(named) <= TARGETS


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_pinned_by_commit_and_rights_are_few(file: Path) -> None:
    workflow = read(file)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    writes = [name for job in jobs(file) for name, right in job.get("permissions", {}).items() if right == "write"]
    assert file.stem == "release" or writes == []
    for _, step in steps(file):
        assert "uses" not in step or re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])
    assert "secrets." not in file.read_text("utf-8")
    assert all("timeout-minutes" in job for job in jobs(file))


def test_every_python_that_is_claimed_is_tested() -> None:
    matrix = read(ROOT / ".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == CLASSIFIERS == ["3.11", "3.12", "3.13", "3.14", "3.15"]
    systems = {*matrix["os"], *(one["os"] for one in matrix["include"])}
    assert any(name.startswith("macos") for name in systems)


def test_every_postgresql_from_14_to_18_is_tested_and_redis_and_valkey() -> None:
    servers = read(ROOT / ".github/workflows/test.yml")["jobs"]["servers"]["strategy"]["matrix"]["server"]
    assert {f"postgres-{version}" for version in range(14, 19)} < set(servers)
    assert {name.partition("-")[0] for name in servers} == {"postgres", "redis", "valkey"}


def test_everything_that_make_deep_runs_is_run_at_night() -> None:
    deep = read(ROOT / ".github/workflows/deep.yml")
    (line,) = re.findall(r"^deep:\n\t@\$\(MAKE\) -k (.+) FROM=", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(line.split()) == set(deep["jobs"]["deep"]["strategy"]["matrix"]["part"])
    assert deep[True]["schedule"]  # `on` is a boolean in YAML 1.1


@pytest.mark.parametrize("file", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda file: file.name)
def test_an_issue_form_has_what_github_asks_for(file: Path) -> None:
    form = read(file)
    if file.stem == "config":
        assert all(link["url"].startswith("https://") for link in form["contact_links"])
        return
    assert {"name", "description", "body"} <= form.keys()
    assert all("label" in part["attributes"] for part in form["body"])
    identifiers = [part["id"] for part in form["body"]]
    assert len(identifiers) == len(set(identifiers))


@pytest.mark.parametrize("name", ["SECURITY.md", "RELEASING.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"])
def test_a_page_of_the_house_is_there_and_its_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\((?!https?:)([^)#]*)", page.read_text("utf-8")):
        assert (ROOT / target).exists(), target
    for target in set(re.findall(r"`make ([a-z-]+)", page.read_text("utf-8"))):
        assert target in TARGETS, target
