"""The page of an audit's findings: one HTML file without scripts or links; every text in it is escaped.

Knows the findings; how a page is written is rewards.page, and the words are those of the terminal.
"""

from __future__ import annotations

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
from rewards.dataset_check import DatasetReport
from rewards.findings import Findings
from rewards.page import as_text, table, write_html

_SHOWN_ROWS = 200


def write_page(path: str, origin: str, report: DatasetReport, findings: Findings | None) -> None:
    """Writes the page; findings is None where no reward was attacked."""
    body = [f"<h1>Audit of {as_text(origin)}</h1>"]
    if findings is not None:
        body += _findings(findings)
    body += _dataset(report)
    write_html(Path(path), "Audit", body)


def _findings(findings: Findings) -> list[str]:
    parts = [
        f'<p>Exploitability</p><p class="figure">{findings.exploitability():.3f}</p>',
        "<p>0: no attack earns more than an honest wrong answer; 1: the best attack earns as much as a right "
        f"one. {as_text(counts_line(findings))}.</p>",
    ]
    for kind, title in TITLES.items():
        families = findings.of_kind(kind)
        title = "attacks" if kind is Kind.ATTACK else title
        parts.append(f"<h2>{as_text(title)}</h2>{table(HEADINGS, map(family_cells, families))}")
        for family in families:
            for example in family.telling:
                head = as_text(example_line(family, example))
                parts.append(f"<p>{head}</p><pre>{as_text(example.text)}</pre>")
    names = findings.scorers
    rows = ([one, *(f"{findings.agreement[one, two]:.3f}" for two in names)] for one in names)
    parts.append(f"<h2>agreement of the scorers</h2>{table(['', *names], rows)}")
    parts.append(f"<h2>latency</h2><p>{as_text(latency_line(findings))}</p>")
    return parts


def _dataset(report: DatasetReport) -> list[str]:
    types = ([name, f"{count:,}"] for name, count in report.types.most_common())
    parts = [
        f"<h2>dataset: {report.problems:,} problems</h2>",
        table(("answer type", "problems"), types),
    ]
    for title, lines in dataset_lines(report):
        if lines:
            shown = "".join(f"<li>{as_text(line)}</li>" for line in lines[:_SHOWN_ROWS])
            more = f"<p>and {len(lines) - _SHOWN_ROWS:,} more</p>" if len(lines) > _SHOWN_ROWS else ""
            parts.append(f"<h3>{as_text(title)}: {len(lines):,}</h3><ul>{shown}</ul>{more}")
    return parts
