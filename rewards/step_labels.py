"""Monte-Carlo step labels: can the problem still be solved after this step?

From the text up to the end of a step a policy writes K completions, and a verifier judges their answers. A
label says how far the solution can still be saved *by that policy*, not whether the step is right: a strong
policy repairs wrong steps, a weak one fails after right ones. Three methods:

- soft: the share of right completions, K from every step (Math-Shepherd's soft estimate, Wang et al. 2023,
  arXiv:2312.08935, eq. 4), or fewer where their interval is narrow already.
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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from itertools import accumulate

from rewards.completer import Completer, Request
from rewards.errors import DataError, EngineError
from rewards.scorer import Scorer
from rewards.step_estimates import (
    Counts,
    StepLabelSettings,
    count_violations,
    repair_labels,
    wilson_interval,
)
from rewards.step_solutions import Basis, Estimate, LabelledSolution, Solution
from rewards.types import Reason, Score, Verdict

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What completions may cost, and how work is kept.

    Args:
        tokens: of completions, with those of begun, from which on no more are asked for; None: no limit, and
            a batch is all that is wanted. Otherwise a batch is as large as the cost of those before allows,
            the first a single step's: no more than the last batch, if that, exceeds the limit.
        at_once: completions of a batch at most, where there is a limit.
        begun: what earlier calls counted, by the key of the solution.
        keep: told the counts of all solutions after every batch, so that nothing is paid for twice.
    """

    tokens: int | None = None
    at_once: int = 64
    begun: Mapping[str, Counts] = field(default_factory=dict[str, Counts])
    keep: Callable[[Mapping[str, Counts]], None] = lambda counts: None


def label_steps(
    solutions: Sequence[Solution],
    completer: Completer,
    scorer: Scorer,
    settings: StepLabelSettings,
    spending: Spending | None = None,
) -> list[LabelledSolution]:
    """Labels all steps of all solutions, in order; one call of the completer and the scorer a batch.

    The estimates of a solution depend on its own key, not on the others of the call. A problem that the
    scorer abstains from has no labels, and costs nothing.

    Args:
        solutions: with different keys.
        completer: the policy that writes on.
        scorer: judges answers, and earns nothing for a truncated text without a complete one: the accuracy
            verifier.
        settings: what is asked of it.
        spending: what the completions may cost, and what earlier calls have learned; None: no limit.

    Raises:
        DataError: two solutions have one key.
        EngineError: the completer returns another number of continuations than was asked for.
    """
    if len({solution.key for solution in solutions}) < len(solutions):
        raise DataError("solutions: expected different keys, because they decide what is drawn")
    spending = spending or Spending()
    works = [_Work(solution, settings, spending.begun.get(solution.key)) for solution in solutions]
    _judge_answers(works, scorer)
    while asked := _next_batch(works, spending):
        _run_batch(asked, completer, scorer)
        spending.keep({work.solution.key: work.counts() for work in works})
    return [work.result() for work in works]


@dataclass(slots=True)
class _Work:
    """What is known of one solution so far; lists have one entry a step."""

    solution: Solution
    settings: StepLabelSettings
    begun: InitVar[Counts | None]
    answered: list[float | None] = field(init=False)
    """Labels that the verdict on the answer settles."""
    asked: list[int] = field(init=False)
    trials: list[int] = field(init=False)
    successes: list[int] = field(init=False)
    tokens: int = 0
    abstained: bool = False
    version: str = ""

    def __post_init__(self, begun: Counts | None) -> None:
        size = len(self.solution.steps)
        self.answered = [None] * size
        self.asked, self.trials, self.successes = ([0] * size for _ in range(3))
        if begun is not None:
            self.asked, self.trials, self.successes = map(list, (begun.asked, begun.trials, begun.successes))
            self.tokens = begun.tokens

    def counts(self) -> Counts:
        return Counts(tuple(self.asked), tuple(self.trials), tuple(self.successes), self.tokens)

    def prefix(self, step: int) -> str:
        return "".join(self.solution.steps[: step + 1])

    def request(self, step: int) -> Request:
        left = self.settings.completions - self.asked[step]
        needs_all = self.settings.method == "soft" and not self.settings.width
        number = left if needs_all else min(self.settings.wave, left)
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
        if self.settings.method != "soft":
            return self.successes[step] > 0
        low, high = wilson_interval(self.successes[step], self.trials[step], self.settings.confidence)
        return high - low <= self.settings.width

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


def _next_batch(works: Sequence[_Work], spending: Spending) -> list[tuple[_Work, int]]:
    """The steps to ask about now, those of the first solutions first; none when all is known or spent."""
    wanted = [(work, step) for work in works for step in work.wanted()]
    if spending.tokens is None:
        return wanted
    spent, made = sum(work.tokens for work in works), sum(sum(work.asked) for work in works)
    if spent >= spending.tokens:
        return []
    room = min(spending.at_once, (spending.tokens - spent) * made // spent) if spent else 0
    sizes = accumulate(work.request(step).number for work, step in wanted)
    return [
        one for place, (one, size) in enumerate(zip(wanted, sizes, strict=True)) if not place or size <= room
    ]


def _run_batch(asked: Sequence[tuple[_Work, int]], completer: Completer, scorer: Scorer) -> None:
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
