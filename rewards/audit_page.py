"""The page of an audit's findings: one HTML file without scripts or links; every text in it is escaped.

Knows the findings and how a page is written; the words are those of the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from rewards.attacks import Kind
from rewards.audit_text import (
    HEADINGS,
    TITLES,
    counts_line,
    dataset_lines,
    example_line,
    family_cells,
    latency_line,
)
from rewards.compare import visible
from rewards.dataset_check import DatasetReport
from rewards.findings import Findings

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{border:1px solid #ccc;padding:.2rem .6rem;"
    "text-align:left;vertical-align:top}th{background:#f3f3f3}pre{background:#f7f7f7;padding:.5rem;"
    "white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}.figure{font-size:2.4rem;font-weight:600}"
)
_SHOWN_ROWS = 200


def write_page(path: str, origin: str, report: DatasetReport, findings: Findings | None) -> None:
    """Writes the page; findings is None where no reward was attacked."""
    body = [f"<h1>Audit of {_text(origin)}</h1>"]
    if findings is not None:
        body += _findings(findings)
    body += _dataset(report)
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Audit</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page, encoding="utf-8")


def _findings(findings: Findings) -> list[str]:
    parts = [
        f'<p>Exploitability</p><p class="figure">{findings.exploitability():.3f}</p>',
        "<p>0: no attack earns more than an honest wrong answer; 1: the best attack earns as much as a right "
        f"one. {_text(counts_line(findings))}.</p>",
    ]
    for kind, title in TITLES.items():
        families = findings.of_kind(kind)
        title = "attacks" if kind is Kind.ATTACK else title
        parts.append(f"<h2>{_text(title)}</h2>{_table(HEADINGS, map(family_cells, families))}")
        for family in families:
            for example in family.telling:
                head = _text(example_line(family, example))
                parts.append(f"<p>{head}</p><pre>{_text(example.text)}</pre>")
    names = findings.scorers
    rows = ([one, *(f"{findings.agreement[one, two]:.3f}" for two in names)] for one in names)
    parts.append(f"<h2>agreement of the scorers</h2>{_table(['', *names], rows)}")
    parts.append(f"<h2>latency</h2><p>{_text(latency_line(findings))}</p>")
    return parts


def _dataset(report: DatasetReport) -> list[str]:
    types = ([name, f"{count:,}"] for name, count in report.types.most_common())
    parts = [
        f"<h2>dataset: {report.problems:,} problems</h2>",
        _table(("answer type", "problems"), types),
    ]
    for title, lines in dataset_lines(report):
        if lines:
            shown = "".join(f"<li>{_text(line)}</li>" for line in lines[:_SHOWN_ROWS])
            more = f"<p>and {len(lines) - _SHOWN_ROWS:,} more</p>" if len(lines) > _SHOWN_ROWS else ""
            parts.append(f"<h3>{_text(title)}: {len(lines):,}</h3><ul>{shown}</ul>{more}")
    return parts


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(text: str) -> str:
    """Text for a page: controls as escapes, markup as text."""
    return escape(visible(text, 2000))
