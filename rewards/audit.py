"""Attacks a reward before a policy does: `python -m rewards.audit reward=verifiable+format data=gsm8k`.

From the dataset's own problems it builds right and wrong answers and many texts that try to be paid without
an answer, and prints which earn anything, how exploitable the reward is, and how long it takes; the same as a
page (page=audit.html). Works for any reward. Without `reward`, it only checks the dataset: golds that cannot
be verified, duplicates, types, by row; your own file is `data=jsonl data.path=FILE`. Exit status: 0 sound, 1
above max_exploitability or data.max_invalid_share, 2 refused.

This module connects the pieces and prints; it builds no attack and computes no figure.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewards.attacks import Kind, Target, target_of
from rewards.audit_config import AUDIT, AuditConfig
from rewards.audit_data import load_audited
from rewards.audit_page import write_page
from rewards.audit_text import (
    HEADINGS,
    TITLES,
    counts_line,
    dataset_lines,
    example_line,
    family_cells,
    latency_line,
)
from rewards.build import build, build_scorer
from rewards.compare import visible
from rewards.config import hydra_entry
from rewards.dataset_check import DatasetReport, check_dataset
from rewards.errors import DataError
from rewards.findings import Findings, attack
from rewards.format import FormatSpec
from rewards.types import Problem
from rewards.verifiers.accuracy import AccuracyVerifier

UNSOUND = 1
"""Exit status when a limit is passed."""
_SHOWN_ROWS = 20
_OTHERS = 40
"""Other problems whose golds serve as wrong answers."""


@hydra_entry(AUDIT)
def main(config: AuditConfig) -> None:
    """The program."""
    if not run(config, Console()):
        sys.exit(UNSOUND)


def run(config: AuditConfig, console: Console) -> bool:
    """Checks the dataset and, where there is a reward, attacks it; returns whether all limits hold.

    Raises DataError when the data cannot be read or no problem of it can be attacked.
    """
    audited = load_audited(config.data)
    for line in audited.said:
        console.print(Text(line), soft_wrap=True)
    report = check_dataset(audited.problems)
    print_report(console, report, audited.origin)
    findings = _attack(config, audited.problems) if config.reward.components else None
    if findings is not None:
        print_findings(console, findings)
    if config.page is not None:
        write_page(config.page, audited.origin, report, findings)
        console.print(Text(f"page: {config.page}"), soft_wrap=True)
    return _verdict(config, console, report, findings)


def _attack(config: AuditConfig, problems: Sequence[Problem]) -> Findings:
    scorer = build_scorer(config.reward)
    spec: FormatSpec = build(config.format)
    step = max(1, len(problems) // config.problems)
    chosen = problems[::step][: config.problems]
    others = problems[:: max(1, len(problems) // _OTHERS)][:_OTHERS]
    found: list[Target | None] = [target_of(problem, others) for problem in chosen]
    targets = [target for target in found if target is not None]
    if not targets:
        raise DataError("none of the problems has a gold that can be read: there is nothing to attack with")
    return attack(scorer, targets, spec, {"exact answer": AccuracyVerifier(spec)})


def _verdict(config: AuditConfig, console: Console, report: DatasetReport, findings: Findings | None) -> bool:
    lines: list[str] = []
    limit = float(config.data["max_invalid_share"])
    if report.invalid_share() > limit:
        lines.append(
            f"{report.invalid_share():.1%} of the golds cannot be verified (data.max_invalid_share={limit:g})"
        )
    if findings is not None and findings.exploitability() > config.max_exploitability:
        lines.append(
            f"exploitability {findings.exploitability():.3f} is above "
            f"max_exploitability={config.max_exploitability:g}"
        )
    for line in lines:
        console.print(Text(f"unsound: {line}", style="bold red"), soft_wrap=True)
    return not lines


def print_report(console: Console, report: DatasetReport, origin: str) -> None:
    """Prints what the check of a dataset found."""
    console.print(Text(f"{origin}: {report.problems:,} problems"), soft_wrap=True)
    types = ", ".join(f"{name} {count:,}" for name, count in report.types.most_common())
    console.print(Text(f"answer types: {types}"), soft_wrap=True)
    for title, rows in dataset_lines(report):
        console.print(Text(f"{title}: {len(rows):,}"), soft_wrap=True)
        for row in rows[:_SHOWN_ROWS]:
            console.print(Text(f"  {row}"), soft_wrap=True)
        if len(rows) > _SHOWN_ROWS:
            console.print(Text(f"  and {len(rows) - _SHOWN_ROWS:,} more"))


def print_findings(console: Console, findings: Findings) -> None:
    """Prints what the attacks on a reward found."""
    console.print(Text(f"\nexploitability {findings.exploitability():.3f} (0: no attack earns more than an "
                       "honest wrong answer; 1: the best attack earns as much as a right one)"))  # fmt: skip
    console.print(Text(counts_line(findings)), soft_wrap=True)
    for kind, title in TITLES.items():
        families = findings.of_kind(kind)
        earning = [
            family for family in families if kind is not Kind.ATTACK or family.earned or family.unscored
        ]
        idle = len(families) - len(earning)
        table = Table(
            title=title + (f" ({idle} families earn nothing)" if idle else ""), title_justify="left"
        )
        for heading in HEADINGS:
            table.add_column(heading, justify="left" if heading in ("family", "reasons") else "right")
        for family in earning:
            table.add_row(*(Text(cell) for cell in family_cells(family)))
        console.print(table)
    _print_examples(console, findings)
    names = findings.scorers
    matrix = Table("pay the same", *names, title="agreement of the scorers", title_justify="left")
    for one in names:
        matrix.add_row(one, *(f"{findings.agreement[one, two]:.3f}" for two in names))
    console.print(matrix)
    console.print(Text(latency_line(findings)), soft_wrap=True)


def _print_examples(console: Console, findings: Findings) -> None:
    for kind in (Kind.ATTACK, Kind.RIGHT):
        for family in findings.of_kind(kind):
            for example in family.telling[:1]:
                told = "paid" if kind is Kind.ATTACK else "not paid in full"
                head = f"{told}: {visible(example_line(family, example))}"
                console.print(Text(head), soft_wrap=True)
                console.print(Text(f"  {visible(example.text, 300)!r}"), soft_wrap=True)


if __name__ == "__main__":
    main()
