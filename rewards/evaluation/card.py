"""The report card of a reward model: all results kept in a folder, as markdown and as one HTML file.

Each measurement leaves `NAME.json` and a picture of each chart; the cards are made anew from all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rewards import page
from rewards.compare import visible
from rewards.errors import ConfigError, DataError
from rewards.evaluation.chart import svg
from rewards.evaluation.figures import headings, shown
from rewards.evaluation.results import Result, result_from_record, result_to_record
from rewards.evaluation.settings import FITTED, PROTOCOLS

CARD = "card"
FOLDER = "evaluation"
"""Where in a model's folder its results and cards are."""
_MARKS = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def keep(folder: Path, result: Result) -> None:
    """Adds a result to a folder, in place of one of the same name, and makes its cards anew.

    Raises:
        ConfigError: the folder cannot be written. DataError: as `read_results`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{result.name}-chart*.svg"):
            old.unlink()
        text = json.dumps(result_to_record(result), indent=1, allow_nan=False)
        (folder / f"{result.name}.json").write_text(text + "\n", encoding="utf-8")
        for number, chart in enumerate(result.findings.charts, start=1):
            (folder / _picture(result, number)).write_text(svg(chart) + "\n", encoding="utf-8")
        results = read_results(folder)
        (folder / f"{CARD}.md").write_text("\n".join(_markdown(results)) + "\n", encoding="utf-8")
        page.write_page(str(folder / f"{CARD}.html"), "Report card", _html(results))
    except OSError as error:
        raise ConfigError(
            f"output={folder}: cannot be written ({error.strerror or error}): give another folder"
        ) from error


def read_results(folder: Path) -> list[Result]:
    """The results of a folder by name; json files that are not named after a protocol are somebody else's.

    Raises:
        DataError: for a file that is named like a result and is none.
    """
    results: list[Result] = []
    patterns = (f"{FITTED}.json", *(f"{protocol}-*.json" for protocol in PROTOCOLS))
    named = (path for pattern in patterns for path in folder.glob(pattern))
    for path in sorted(named):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{path}: not JSON ({error}): move it out of the folder") from error
        results.append(result_from_record(record, str(path)))
    return results


def title(result: Result) -> str:
    """What was measured, in a line."""
    files = ", ".join(Path(path).name for path in result.inputs)
    return f"{result.protocol}: {files}, {result.findings.questions:,} questions"


def _picture(result: Result, number: int) -> str:
    return f"{result.name}-chart{number}.svg"


def _html(results: Sequence[Result]) -> Iterator[str]:
    yield "<h1>Report card</h1>"
    for result in results:
        findings = result.findings
        yield f"<h2>{page.text(title(result))}</h2><p>scores of: {page.text(result.judge)}</p>"
        yield page.table(headings(result.level), map(shown, findings.measures))
        yield from (f"<h3>{page.text(chart.title)}</h3>{svg(chart)}" for chart in findings.charts)
        for table in findings.tables:
            yield f"<h3>{page.text(table.title)}</h3>{page.table(table.headings, table.rows)}"
        yield f"<ul>{''.join(f'<li>{page.text(line)}</li>' for line in findings.said)}</ul>"


def _markdown(results: Sequence[Result]) -> Iterator[str]:
    yield "# Report card"
    for result in results:
        findings = result.findings
        yield from ("", f"## {_plain(title(result))}", "", f"scores of: {_plain(result.judge)}", "")
        yield from _rows(headings(result.level), [shown(measure) for measure in findings.measures])
        for number, chart in enumerate(findings.charts, start=1):
            yield from ("", f"![{_plain(chart.title)}]({_picture(result, number)})")
        for table in findings.tables:
            yield from ("", f"### {_plain(table.title)}", "", *_rows(table.headings, table.rows))
        yield from ("", *(f"- {_plain(line)}" for line in findings.said))


def _rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (names, ["---"] * len(names), *rows):
        yield "| " + " | ".join(cell if cell == "---" else _plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """A text that markdown and the HTML in it leave as it is."""
    return _MARKS.sub(r"\\\1", visible(text).replace("\n", " "))
