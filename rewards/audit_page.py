"""The page of an audit's findings. Knows the findings; the words are those of the terminal."""

from __future__ import annotations

from rewards import page
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

_SHOWN_ROWS = 200


def write_page(path: str, origin: str, report: DatasetReport, findings: Findings | None) -> None:
    """Writes the page; findings is None where no reward was attacked."""
    body = [f"<h1>Audit of {page.text(origin)}</h1>"]
    if findings is not None:
        body += _findings(findings)
    body += _dataset(report)
    page.write_page(path, "Audit", body)


def _findings(findings: Findings) -> list[str]:
    parts = [
        f'<p>Exploitability</p><p class="figure">{findings.exploitability():.3f}</p>',
        "<p>0: no attack earns more than an honest wrong answer; 1: the best attack earns as much as a right "
        f"one. {page.text(counts_line(findings))}.</p>",
    ]
    for kind, title in TITLES.items():
        families = findings.of_kind(kind)
        title = "attacks" if kind is Kind.ATTACK else title
        parts.append(f"<h2>{page.text(title)}</h2>{page.table(HEADINGS, map(family_cells, families))}")
        for family in families:
            for example in family.telling:
                head = page.text(example_line(family, example))
                parts.append(f"<p>{head}</p><pre>{page.text(example.text)}</pre>")
    names = findings.scorers
    rows = ([one, *(f"{findings.agreement[one, two]:.3f}" for two in names)] for one in names)
    parts.append(f"<h2>agreement of the scorers</h2>{page.table(['', *names], rows)}")
    parts.append(f"<h2>latency</h2><p>{page.text(latency_line(findings))}</p>")
    return parts


def _dataset(report: DatasetReport) -> list[str]:
    types = ([name, f"{count:,}"] for name, count in report.types.most_common())
    parts = [
        f"<h2>dataset: {report.problems:,} problems</h2>",
        page.table(("answer type", "problems"), types),
    ]
    for title, lines in dataset_lines(report):
        if lines:
            shown = "".join(f"<li>{page.text(line)}</li>" for line in lines[:_SHOWN_ROWS])
            more = f"<p>and {len(lines) - _SHOWN_ROWS:,} more</p>" if len(lines) > _SHOWN_ROWS else ""
            parts.append(f"<h3>{page.text(title)}: {len(lines):,}</h3><ul>{shown}</ul>{more}")
    return parts
