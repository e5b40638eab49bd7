"""Monte-Carlo step labels: can the problem still be solved after this step?

From the text up to the end of a step a policy writes K completions, and a verifier judges their answers. A
label says how far the solution can still be saved *by that policy*, not whether the step is right: a strong
policy repairs wrong steps, a weak one fails after right ones. Three methods:

- soft: the share of right completions, K from every step (Math-Shepherd's soft estimate, Wang et al. 2023,
  arXiv:2312.08935, eq. 4).
- hard: 1 where any of at most K is right (ibid., eq. 3); asked for in waves, up to the first right one.
- first_error: hard labels at log2(S) of S steps, those of a binary search for the first step without any
  right completion (OmegaPRM, Luo et al. 2024, arXiv:2406.06592). The other labels follow by order, which
  assumes that a solution once lost stays lost.

The last step costs nothing: its label is the verdict on the answer, and none where the token limit cut the
text before there was one. The same verdict labels every earlier step whose text already holds that answer,
since completions would only copy it. Knows neither models nor tokens: a policy is whatever keeps the
protocol of rewards.completer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rewards.completer import Completer, Request
from rewards.errors import DataError, EngineError
from rewards.labelled import ProcessExample, example_to_record
from rewards.scorer import Scorer
from rewards.step_estimates import StepLabelSettings, count_violations, repair_labels, wilson_interval
from rewards.steps import StepSettings, split_steps
from rewards.types import Reason, Sample, Score, Verdict

Basis = Literal["completions", "answer", "order", "none"]
"""What a label rests on: its own completions, the verdict on the answer, those of other steps, nothing."""

RIGHT = 0.5
"""A score above it counts as right."""
_HOLDS_ANSWER = frozenset(
    {
        Reason.MATCH_STRING,
        Reason.MATCH_NUMERIC,
        Reason.MATCH_STRUCTURE,
        Reason.MATCH_SYMBOLIC,
        Reason.MISMATCH,
    }
)


@dataclass(frozen=True, slots=True)
class Solution:
    """A completion to be labelled: the texts of its steps, which joined are sample.text.

    key names it among all that share a seed, and stays its name in files.
    """

    sample: Sample
    steps: tuple[str, ...]
    key: str

    def __post_init__(self) -> None:
        if not self.steps or "".join(self.steps) != self.sample.text:
            raise DataError(f"solution {self.key!r}: expected steps, one or more, that join to its text")


def cut_solution(sample: Sample, key: str, settings: StepSettings | None = None) -> Solution:
    """A sample, its text not empty, cut by `rewards.steps`."""
    spans = split_steps(sample.text, settings)
    return Solution(sample, tuple(sample.text[span.start : span.end] for span in spans), key)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One step's label in [0, 1], or None where nothing could be judged, and what it rests on.

    low, high: Wilson's interval of the share of right completions; (0, 1) without any.
    """

    value: float | None
    basis: Basis
    trials: int = 0
    successes: int = 0
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, slots=True)
class LabelledSolution:
    """A solution with one estimate a step.

    Args:
        solution: what was labelled.
        estimates: (S,), repaired where that was asked for.
        violations: steps labelled 0 before a later step labelled above 0, counted before any repair.
        completions: how many were asked for.
        failed: those that our own machinery failed to judge; they are in no estimate.
        tokens: what the completions cost.
        finished: False where the budget ran out first; steps without a judgement then have no value.
        version: of the scorer.
    """

    solution: Solution
    estimates: tuple[Estimate, ...]
    violations: int
    completions: int
    failed: int
    tokens: int
    finished: bool
    version: str

    def example(self, source: str = "") -> ProcessExample:
        """The labels as an example that a process reward model is trained on."""
        values = tuple(estimate.value for estimate in self.estimates)
        question = self.solution.sample.problem.prompt
        return ProcessExample(question, self.solution.steps, values, source, self.solution.key)

    def record(self, source: str = "") -> dict[str, Any]:
        """The example's record with the evidence beside it, as a line of a file of labelled examples."""
        evidence = [
            {"basis": e.basis, "trials": e.trials, "successes": e.successes, "low": e.low, "high": e.high}
            for e in self.estimates
        ]
        counts = {"violations": self.violations, "completions": self.completions, "failed": self.failed}
        return (
            example_to_record(self.example(source))
            | {"estimates": evidence, "scorer": self.version, "tokens": self.tokens}
            | counts
        )


def label_steps(
    solutions: Sequence[Solution],
    completer: Completer,
    scorer: Scorer,
    settings: StepLabelSettings,
    budget: int | None = None,
) -> list[LabelledSolution]:
    """Labels all steps of all solutions, in order; one call of the completer and the scorer a round.

    The estimates of a solution depend on its own key, not on the others of the call. A problem that the
    scorer abstains from has no labels, and costs nothing.

    Args:
        solutions: with different keys.
        completer: the policy that writes on.
        scorer: judges answers, and earns nothing for a truncated text without a complete one: the accuracy
            verifier.
        settings: what is asked of it.
        budget: tokens of completions after which no further round begins; None: no limit. The last round
            may exceed it.

    Raises:
        DataError: two solutions have one key.
        EngineError: the completer returns another number of continuations than was asked for.
    """
    if len({solution.key for solution in solutions}) < len(solutions):
        raise DataError("solutions: expected different keys, because they decide what is drawn")
    works = [_Work(solution, settings) for solution in solutions]
    _judge_answers(works, scorer)
    while budget is None or sum(work.tokens for work in works) < budget:
        asked = [(work, step) for work in works for step in work.wanted()]
        if not asked:
            break
        _run_round(asked, completer, scorer)
    return [work.result() for work in works]


@dataclass(slots=True)
class _Work:
    """What is known of one solution so far; lists have one entry a step."""

    solution: Solution
    settings: StepLabelSettings
    answered: list[float | None] = field(init=False)
    """Labels that the verdict on the answer settles."""
    asked: list[int] = field(init=False)
    trials: list[int] = field(init=False)
    successes: list[int] = field(init=False)
    tokens: int = 0
    abstained: bool = False
    version: str = ""

    def __post_init__(self) -> None:
        size = len(self.solution.steps)
        self.answered = [None] * size
        self.asked, self.trials, self.successes = ([0] * size for _ in range(3))

    def prefix(self, step: int) -> str:
        return "".join(self.solution.steps[: step + 1])

    def request(self, step: int) -> Request:
        left = self.settings.completions - self.asked[step]
        number = left if self.settings.method == "soft" else min(self.settings.wave, left)
        key = f"{self.settings.seed}/{self.solution.key}/{step}/{self.asked[step]}"
        sample = self.solution.sample
        return Request(sample.problem, self.prefix(step), number, key, sample.prefill)

    def wanted(self) -> list[int]:
        """The steps that need completions now; none when all is known."""
        if self.abstained:
            return []
        if self.settings.method == "first_error":
            low, high = self._bounds()
            middle = (low + high) // 2
            return [middle] if low < high and not self._is_settled(middle) else []
        return [step for step in range(len(self.asked)) if not self._is_settled(step)]

    def result(self) -> LabelledSolution:
        finished = not self.wanted()
        found = [self._estimate(step) for step in range(len(self.asked))]
        values = [estimate.value for estimate in found]
        monotone = self._ordered(values)
        return LabelledSolution(
            self.solution,
            tuple(
                estimate if estimate.value == value else replace(estimate, value=value, basis="order")
                for estimate, value in zip(found, monotone, strict=True)
            ),
            violations=count_violations(values),
            completions=sum(self.asked),
            failed=sum(self.asked) - sum(self.trials),
            tokens=self.tokens,
            finished=finished,
            version=self.version,
        )

    def _ordered(self, values: list[float | None]) -> list[float | None]:
        """The labels with what their order tells of them."""
        if self.settings.method != "first_error" or self.abstained:
            return repair_labels(values, self.settings.repair)
        low, high = self._bounds()
        return [1.0 if step < low else 0.0 if step >= high else value for step, value in enumerate(values)]

    def _bounds(self) -> tuple[int, int]:
        """(low, high): steps before low can be saved, those from high on cannot; equal at the end.

        The search goes on at the middle of the two, or stops there when its completions could not be judged.
        """
        low, high = 0, len(self.asked)
        if (last := self._value(high - 1)) is not None:
            low, high = (high, high) if last > 0 else (0, high - 1)
        while low < high:
            middle = (low + high) // 2
            value = self._value(middle) if self._is_settled(middle) else None
            if value is None:
                break
            low, high = (middle + 1, high) if value > 0 else (low, middle)
        return low, high

    def _is_settled(self, step: int) -> bool:
        is_last = step == len(self.asked) - 1
        if is_last or self.answered[step] is not None or self.asked[step] >= self.settings.completions:
            return True
        return self.settings.method != "soft" and self.successes[step] > 0

    def _value(self, step: int) -> float | None:
        if self.answered[step] is not None:
            return self.answered[step]
        if not self.trials[step]:
            return None
        share = self.successes[step] / self.trials[step]
        return share if self.settings.method == "soft" else float(share > 0)

    def _estimate(self, step: int) -> Estimate:
        value = self._value(step) if self._is_settled(step) else None
        if value is None:
            basis: Basis = "none"
        else:
            basis = "completions" if self.answered[step] is None else "answer"
        trials, successes = self.trials[step], self.successes[step]
        low, high = wilson_interval(successes, trials, self.settings.confidence)
        return Estimate(value, basis, trials, successes, low, high)


def _judge_answers(works: Sequence[_Work], scorer: Scorer) -> None:
    """Settles the last steps, and those whose text already holds the answer that counts at the end."""
    wholes = scorer.score([work.solution.sample for work in works])
    for work, whole in zip(works, wholes, strict=True):
        work.version = whole.version
        work.abstained = whole.verdict is Verdict.ABSTAINED
        torn = work.solution.sample.truncated and whole.reason not in _HOLDS_ANSWER
        work.answered[-1] = None if whole.value is None or torn else float(whole.value > RIGHT)
    inner = [(work, step) for work in works for step in range(len(work.asked) - 1)]
    begun = [replace(work.solution.sample, text=work.prefix(step), truncated=True) for work, step in inner]
    for (work, step), score in zip(inner, scorer.score(begun), strict=True):
        label = None if score.value is None else float(score.value > RIGHT)
        # An answer that later steps turn from wrong to right, or back, was not the last word.
        if score.reason in _HOLDS_ANSWER and label == work.answered[-1]:
            work.answered[step] = label


def _run_round(asked: Sequence[tuple[_Work, int]], completer: Completer, scorer: Scorer) -> None:
    """Asks for the next completions of these steps, judges them and counts."""
    requests = [work.request(step) for work, step in asked]
    answers = completer.complete(requests)
    if [len(answer) for answer in answers] != [request.number for request in requests]:
        raise EngineError("the completer returned another number of continuations than it was asked for")
    samples = [
        replace(
            work.solution.sample,
            text=request.prefix + continuation.text,
            truncated=continuation.truncated,
        )
        for (work, _), request, answer in zip(asked, requests, answers, strict=True)
        for continuation in answer
    ]
    scores = iter(scorer.score(samples))
    for (work, step), answer in zip(asked, answers, strict=True):
        work.asked[step] += len(answer)
        work.tokens += sum(continuation.tokens for continuation in answer)
        for score in (next(scores) for _ in answer):
            _count(work, step, score)


def _count(work: _Work, step: int, score: Score) -> None:
    if score.value is not None:
        work.trials[step] += 1
        work.successes[step] += score.value > RIGHT
