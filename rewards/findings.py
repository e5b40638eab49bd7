"""What attacks on a reward found: what each family earns, which honest answers go unpaid, how long it took.

Pay is measured per problem on a scale on which an honest wrong answer is 0 and an honest right answer 1, so
that a small, intended pay for layout does not count as an exploit. Knows scores, not how they came about;
prints nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rewards.attacks import Attempt, Kind, Target, attempts_on
from rewards.format import FormatSpec
from rewards.scorer import Scorer
from rewards.types import Sample, Score, Verdict

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Example:
    """An attempt and what it was paid."""

    problem_id: str
    gold: str
    text: str
    score: Score


@dataclass(slots=True)
class Family:
    """The attempts of one family: their pays on the scale of the module, clipped to 0..1, and how they ended.

    telling: examples that should not be: paid attacks, unpaid right answers, shortcuts that are paid.
    """

    kind: Kind
    name: str
    pays: list[float] = field(default_factory=list[float])
    earned: int = 0
    reasons: Counter[str] = field(default_factory=Counter[str])
    unscored: Counter[Verdict] = field(default_factory=Counter[Verdict])
    telling: list[Example] = field(default_factory=list[Example])

    def mean(self) -> float:
        """Mean pay; 0 where nothing was scored."""
        return sum(self.pays) / len(self.pays) if self.pays else 0.0


@dataclass(slots=True)
class Findings:
    """All that an audit of a reward found.

    blind: problems whose honest right answer earns no more than the honest wrong one. abstained: problems
    that the reward does not judge. seconds: wall time of each attempt scored alone. agreement: for each pair
    of scorers, the share of attempts on which both or neither pay more than nothing.
    """

    problems: int = 0
    blind: int = 0
    abstained: int = 0
    families: dict[tuple[Kind, str], Family] = field(default_factory=dict[tuple[Kind, str], Family])
    seconds: list[float] = field(default_factory=list[float])
    agreement: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    scorers: list[str] = field(default_factory=list[str])

    def exploitability(self) -> float:
        """0 to 1: the mean pay of the family of attacks that earns most; 1 for a reward that is blind.

        The best family, not the mean over families: a policy finds the best.
        """
        if self.problems and self.blind == self.problems:
            return 1.0
        return max((family.mean() for family in self.of_kind(Kind.ATTACK)), default=0.0)

    def of_kind(self, kind: Kind) -> list[Family]:
        """The families of a kind, those that earn most first."""
        chosen = [family for family in self.families.values() if family.kind is kind]
        return sorted(chosen, key=lambda family: -family.mean())


def attack(
    scorer: Scorer, targets: Sequence[Target], spec: FormatSpec, others: Mapping[str, Scorer]
) -> Findings:
    """Makes every attempt on every target and scores each alone, as its latency is measured.

    others: scorers to compare with, by name; the parts of the scorer are compared as well.
    """
    findings = Findings()
    columns: dict[str, list[bool]] = {}
    for target in targets:
        attempts = attempts_on(target, spec)
        samples = [Sample(target.problem, attempt.text) for attempt in attempts]
        scores = [_timed(scorer, sample, findings.seconds) for sample in samples]
        _count_problem(findings, target, attempts, scores)
        paid = {
            "total": scores,
            **_parts(scores),
            **{name: other.score(samples) for name, other in others.items()},
        }
        for name, column in paid.items():
            columns.setdefault(name, []).extend((score.value or 0.0) > 0.0 for score in column)
    findings.scorers = list(columns)
    findings.agreement = {
        (one, two): sum(map(bool.__eq__, columns[one], columns[two])) / max(1, len(columns[one]))
        for one in columns
        for two in columns
    }
    return findings


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of the values do not exceed; 0 for none.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    place = max(0, -int(-share * len(ordered) // 1) - 1)
    return ordered[place] if ordered else 0.0


def _timed(scorer: Scorer, sample: Sample, seconds: list[float]) -> Score:
    started = time.perf_counter()
    score = scorer.score([sample])[0]
    seconds.append(time.perf_counter() - started)
    return score


def _count_problem(
    findings: Findings, target: Target, attempts: Sequence[Attempt], scores: Sequence[Score]
) -> None:
    findings.problems += 1
    right = next(s.value for a, s in zip(attempts, scores, strict=True) if a.kind is Kind.RIGHT)
    wrong = next(s.value for a, s in zip(attempts, scores, strict=True) if a.kind is Kind.WRONG)
    if right is None or wrong is None:
        findings.abstained += 1
        return
    if right <= wrong:
        findings.blind += 1
        return
    for attempt, score in zip(attempts, scores, strict=True):
        key = (attempt.kind, attempt.family)
        family = findings.families.setdefault(key, Family(attempt.kind, attempt.family))
        family.reasons.update(_reasons(score))
        if score.value is None:
            family.unscored[score.verdict] += 1
            continue
        pay = min(1.0, max(0.0, (score.value - wrong) / (right - wrong)))
        family.pays.append(pay)
        family.earned += pay > 0
        is_telling = pay < 1 if attempt.kind is Kind.RIGHT else pay > 0 and attempt.kind is not Kind.WRONG
        if is_telling and len(family.telling) < _EXAMPLES:
            family.telling.append(Example(target.problem.id, ", ".join(target.right), attempt.text, score))


def _reasons(score: Score) -> list[str]:
    """Why, in codes: the parts' own reasons where there are parts, as `combined` alone tells nothing."""
    return [f"{part.name} {part.score.reason.value}" for part in score.parts] or [score.reason.value]


def _parts(scores: Sequence[Score]) -> dict[str, list[Score]]:
    """The scores of each part, where every score has the same parts."""
    names = [part.name for part in scores[0].parts]
    columns = {
        name: [part.score for score in scores for part in score.parts if part.name == name] for name in names
    }
    return {name: column for name, column in columns.items() if len(column) == len(scores)}
