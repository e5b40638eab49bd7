"""What an audit says, in words and cells: shared by the terminal and the page, so that they cannot differ.

Knows findings; knows no console and no HTML. Model text in what it returns is not yet made visible or
escaped, except in lines of a dataset.
"""

from __future__ import annotations

from rewards.attacks import Kind
from rewards.compare import visible
from rewards.dataset_check import DatasetReport
from rewards.findings import Example, Family, Findings, percentile

_PERCENTILES = (0.5, 0.9, 0.99, 1.0)
TITLES = {
    Kind.ATTACK: "attacks that earn",
    Kind.RIGHT: "honest right answers (must earn 1)",
    Kind.SHORTCUT: "right answers without the work or the layout (for you to judge)",
}
HEADINGS = ("family", "attempts", "earned", "mean pay", "not scored", "reasons")


def dataset_lines(report: DatasetReport) -> list[tuple[str, list[str]]]:
    """(title, one line for each finding) of each check of a dataset."""
    faults = [
        f"row {fault.index + 1}, id {visible(fault.problem_id)}: {fault.reason.value}: "
        f"{visible(' | '.join(fault.gold)) or '(empty)'}"
        for fault in report.faults
    ]
    groups = {
        "ids that occur more than once": report.same_ids,
        "questions that occur more than once": report.same_prompts,
        "the same question with different golds": report.conflicts,
    }
    named = [
        (title, [f"rows {', '.join(map(str, group.rows))}: {visible(group.what)}" for group in found])
        for title, found in groups.items()
    ]
    rows = {"empty questions": report.empty_prompts, "questions that hold a marked answer": report.leaks}
    return [
        ("golds that cannot be verified", faults),
        *named,
        *((title, [f"row {row}" for row in found]) for title, found in rows.items()),
    ]


def family_cells(family: Family) -> list[str]:
    """The cells of a family under HEADINGS."""
    reasons = ", ".join(f"{reason} {count}" for reason, count in family.reasons.most_common(4))
    unscored = sum(family.unscored.values())
    attempts = len(family.pays) + unscored
    return [family.name, str(attempts), str(family.earned), f"{family.mean():.3f}", str(unscored), reasons]


def example_line(family: Family, example: Example) -> str:
    """Where an example is from and what it was paid, in one line."""
    score = example.score
    paid = score.verdict.value if score.value is None else f"{score.value:g}"
    source = f"problem {example.problem_id}, gold {example.gold}"
    return f"{family.name}, {source}: {paid}, {score.reason.value}"


def counts_line(findings: Findings) -> str:
    """How many problems were attacked, and how many told nothing."""
    told = [f"{findings.problems} problems attacked"]
    if findings.blind:
        told.append(f"{findings.blind} on which a right answer earns no more than a wrong one")
    if findings.abstained:
        told.append(f"{findings.abstained} that the reward does not judge")
    return ", ".join(told)


def latency_line(findings: Findings) -> str:
    """Percentiles of the time of one score, in milliseconds."""
    figures = [f"p{share * 100:g} {percentile(findings.seconds, share) * 1000:.2f}" for share in _PERCENTILES]
    return f"milliseconds a score, one by one, over {len(findings.seconds):,}: {', '.join(figures)}"
