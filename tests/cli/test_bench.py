"""The measuring command: what it writes, and that it leaves nothing behind. No figure is judged."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from everturn.bench import measuring
from everturn.bench.contenders import BARE, EVERTURN, Entrant
from everturn.bench.measuring import Chart, ChartPoint, Curve
from everturn.bench.plots import drawn, value
from everturn.testing.servers import valkey_server
from tests.cli.conftest import Run

ABSENT = Entrant("an absent peer", "no_such_package.store:Store", ())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to see that it works."""
    monkeypatch.setattr(measuring, "LENGTHS", (4, 8, 12))
    monkeypatch.setattr(measuring, "WRITERS", (1, 2))
    monkeypatch.setattr(measuring, "SAMPLES", 2)
    monkeypatch.setattr(measuring, "TURNS", 3)


def test_a_file_is_measured_beside_itself_and_left_alone(run: Run, tmp_path: Path) -> None:
    plots = tmp_path / "plots"
    ran = run("bench", f"sqlite:///{tmp_path / 'memory.db'}", "--quick", "--json", "--plots", plots)
    assert ran.code == 0, ran.err
    charts = {chart["name"]: chart for chart in map(json.loads, ran.lines)}
    assert list(charts) == ["append", "disk", "writers"]
    curves = {curve["contender"]: curve for curve in charts["append"]["curves"]}
    assert [point["x"] for point in curves[EVERTURN.title]["points"]] == [4, 8, 12]
    assert [point["x"] for point in curves[BARE.title]["points"]] == [4, 8, 12]
    assert sorted(path.name for path in plots.iterdir()) == ["append.svg", "disk.svg", "writers.svg"]
    for path in plots.iterdir():
        assert ET.parse(path).getroot().tag.endswith("svg")
    assert [path.name for path in tmp_path.iterdir()] == ["plots"]


def test_a_store_that_is_not_installed_is_noted(tmp_path: Path) -> None:
    charts = list(measuring.measure([ABSENT], lambda name: tmp_path / name, quick=True, tell=lambda _: None))
    note = "not installed (no module no_such_package)"
    assert [curve for chart in charts for curve in chart.curves] == [Curve(ABSENT.title, (), note)] * 2


def test_a_server_is_left_as_it_was(run: Run) -> None:
    with valkey_server() as server:
        ran = run("bench", server.url, "--quick")
        assert ran.code == 0, ran.err
        assert "bare RPUSH" in ran.out
        import redis

        with redis.Redis.from_url(server.url) as client:
            for key in client.keys("*"):  # tombstones of what was erased: they go by themselves
                assert set(client.hkeys(key)) <= {b"fence", b"calls"}
                assert 0 < client.ttl(key) <= 60


def test_a_chart_is_drawn_with_names_that_do_not_collide() -> None:
    curves = tuple(Curve(f"<store {n}>", (ChartPoint(10, 1e-4), ChartPoint(1000, 1e-4 * 1.01**n))) for n in range(5))
    picture = drawn(Chart("append", "A & B", "messages", "seconds", (*curves, Curve("none", (), "not installed"))))
    root = ET.fromstring(picture)
    names = [text for text in root.iter("{http://www.w3.org/2000/svg}text") if (text.text or "").startswith("<store")]
    heights = sorted(float(text.attrib["y"]) for text in names)
    assert all(second - first >= 15.9 for first, second in itertools.pairwise(heights))
    assert drawn(Chart("x", "x", "x", "bytes", (Curve("none", ()),))) == ""


def test_figures_are_said_as_people_say_them() -> None:
    assert [value(1.5, "seconds"), value(0.0021, "seconds"), value(3.2e-5, "seconds")] == ["1.5 s", "2.1 ms", "32 us"]
    assert [value(1234, "bytes"), value(5678.9, "turns a second")] == ["1.2 KB", "5,679/s"]
