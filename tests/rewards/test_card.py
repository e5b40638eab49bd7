"""Report cards: all results of a folder, names as text, pictures that stay in their frame."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rewards.errors import ConfigError, DataError
from rewards.evaluation.card import keep, read_results
from rewards.evaluation.chart import svg
from rewards.evaluation.figures import shown
from rewards.evaluation.results import Chart, Findings, Line, Measure, Result, Table

HOSTILE = '<script>alert(1)</script> | `x` [y](javascript:z) \x1b[31m & "q"'
CHART = Chart(
    f"title {HOSTILE}",
    HOSTILE,
    HOSTILE,
    (Line("chance", ((0.0, 0.0), (1.0, 1.0)), guide=True), Line(HOSTILE, ((0.2, -3.0), (0.7, 12.5)))),
)


def result(name: str = "auc-file", value: float = 0.91234) -> Result:
    measures = (
        Measure("auc", value, (0.9, 0.95), HOSTILE),
        Measure("accuracy", 0.5, None, "share", percent=True),
    )
    table = Table(HOSTILE, (HOSTILE, "b"), ((HOSTILE, "2"),))
    findings = Findings(7, measures, (table,), (CHART,), (HOSTILE,))
    return Result(name, "auc", HOSTILE, (f"folder/{HOSTILE}.jsonl",), 0.95, findings)


def test_results_are_kept_and_read_back_equal(tmp_path: Path) -> None:
    folder = tmp_path / "model" / "evaluation"
    keep(folder, result())
    keep(folder, result("steps-file"))
    assert read_results(folder) == [result(), result("steps-file")]
    keep(folder, result(value=0.8))
    assert read_results(folder) == [result(value=0.8), result("steps-file")]
    assert (folder / "card.md").read_text().count("\n## ") == 2
    assert "0.8000" in (folder / "card.html").read_text()
    assert sorted(path.name for path in folder.glob("*.svg")) == [
        "auc-file-chart1.svg",
        "steps-file-chart1.svg",
    ]


def test_a_page_needs_nothing_beside_it_and_runs_nothing(tmp_path: Path) -> None:
    keep(tmp_path, result())
    tags: list[str] = []
    attributes: list[str] = []
    texts: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            attributes.extend(name for name, _ in attrs)

        def handle_data(self, data: str) -> None:
            texts.append(data)

    Reader().feed((tmp_path / "card.html").read_text(encoding="utf-8"))
    assert not {"script", "a", "img", "link", "iframe"} & set(tags)
    assert not [name for name in attributes if name.startswith("on") or name in ("href", "src")]
    whole = "".join(texts)
    assert whole.count("<script>alert(1)</script>") >= 8
    assert "\x1b" not in whole
    assert tags.count("svg") == 1


def test_markdown_shows_names_as_text(tmp_path: Path) -> None:
    keep(tmp_path, result())
    text = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert "<script>" not in text.replace("\\<", "").replace("\\>", "")
    assert not re.search(r"(?<![\\!])\[y\]\(", text)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5, 3}
    assert "![title " in text
    assert "](auc-file-chart1.svg)" in text


def test_figures_are_shares_or_numbers() -> None:
    assert [shown(measure)[:3] for measure in result().findings.measures] == [
        ("auc", "0.9123", "0.9000 to 0.9500"),
        ("accuracy", "50.00 %", ""),
    ]


@pytest.mark.parametrize(
    "points",
    [((0.0, 0.0),), ((0.0, 0.5), (1.0, 0.5)), ((-3.0, 1e-9), (4e6, 2e-9)), ((1.0, 91.0), (8.0, 96.0)), ()],
)
def test_lines_stay_in_the_frame_of_a_chart(points: tuple[tuple[float, float], ...]) -> None:
    drawn = ElementTree.fromstring(svg(Chart("t", "x", "y", (Line("line", points),))))
    names = {"p": "http://www.w3.org/2000/svg"}
    (line,) = drawn.findall("p:polyline", names)
    places = [tuple(map(float, pair.split(","))) for pair in (line.get("points") or "").split()]
    assert len(places) == len(points)
    assert all(56 <= x <= 540 and 12 <= y <= 296 for x, y in places)
    assert len(drawn.findall("p:circle", names)) == len(points)
    for (x, y), (a, b) in pairwise(places):
        assert a >= x
        assert b <= y  # upwards on the page
    labels = [text.text for text in drawn.findall("p:text", names) if text.get("text-anchor") == "end"]
    assert len(labels) == len(set(labels)) >= 3  # the ticks of y can be told apart


def test_a_folder_that_cannot_hold_a_card_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"output=.*file: cannot be written"):
        keep(tmp_path / "file", result())
    (tmp_path / "package.json").write_text("{}")
    keep(tmp_path, result())
    assert len(read_results(tmp_path)) == 1
    (tmp_path / "steps-other.json").write_text(json.dumps({"name": "x"}))
    with pytest.raises(DataError, match=r"steps-other.json: no result of rewards.evaluate .* move it out"):
        keep(tmp_path, result())
    (tmp_path / "steps-other.json").write_text("{")
    with pytest.raises(DataError, match=r"steps-other.json: not JSON"):
        keep(tmp_path, result())
