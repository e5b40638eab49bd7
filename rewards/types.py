"""The records every part of the project exchanges: a problem, a sampled completion, and its score.

Knows nothing of how text is judged or of tensors; standard library only. All records are frozen and
picklable. A verdict is kept apart from a value on purpose: "not scored" is not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Literal, NoReturn, get_args

AnswerType = Literal[
    "auto", "number", "expression", "equation", "set", "interval", "tuple", "matrix", "choice", "text"
]
ANSWER_TYPES: tuple[str, ...] = get_args(AnswerType)


class Verdict(Enum):
    """Whose fault decides: SCORED (a value exists), ABSTAINED (the problem's fault), FAILED (ours)."""

    SCORED = "scored"
    """The completion was judged; a bad completion is SCORED at the floor with a reason."""
    ABSTAINED = "abstained"
    """The problem cannot be judged (no gold, unreadable gold); never depends on the completion."""
    FAILED = "failed"
    """Our machinery broke (dead worker, CUDA error, bug); the row is left out of its group and counted."""

    def __bool__(self) -> NoReturn:
        raise TypeError("a Verdict has no truth value: compare it, e.g. `score.verdict is Verdict.SCORED`")


class Reason(StrEnum):
    """Why a score is what it is: one short code from this fixed list."""

    # accuracy: the answer is right
    MATCH_STRING = "match_string"
    MATCH_NUMERIC = "match_numeric"
    MATCH_STRUCTURE = "match_structure"
    MATCH_SYMBOLIC = "match_symbolic"
    # accuracy: the answer earns the floor
    MISMATCH = "mismatch"
    NO_ANSWER = "no_answer"
    AMBIGUOUS = "ambiguous"
    UNPARSABLE = "unparsable"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    # layout
    FORMAT_OK = "format_ok"
    FORMAT_PARTIAL = "format_partial"
    NO_THINK = "no_think"
    UNCLOSED_THINK = "unclosed_think"
    EMPTY_THINK = "empty_think"
    REPEATED_THINK = "repeated_think"
    MISPLACED_THINK = "misplaced_think"
    UNEXPECTED_THINK = "unexpected_think"
    EMPTY_ANSWER = "empty_answer"
    BAD_ANSWER_BLOCK = "bad_answer_block"
    TRUNCATED = "truncated"
    # shaped and learned rewards
    LENGTH = "length"
    REPETITION = "repetition"
    LANGUAGE = "language"
    STEPS = "steps"
    NO_STEPS = "no_steps"
    MODEL = "model"
    RANDOM = "random"
    # composition
    COMBINED = "combined"
    GATED = "gated"
    PART_ABSTAINED = "part_abstained"
    PART_FAILED = "part_failed"
    # the problem's fault
    NO_GOLD = "no_gold"
    INVALID_GOLD = "invalid_gold"
    PROMPT_TOO_LONG = "prompt_too_long"
    NOT_APPLICABLE = "not_applicable"
    # ours
    WORKER_DIED = "worker_died"
    WALL_CLOCK = "wall_clock"
    INTERNAL = "internal"
    BAD_INPUT = "bad_input"


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with its gold answer.

    gold holds every *required* value: one entry is the usual case, several must all be given, none abstains.
    """

    id: str
    prompt: str
    gold: tuple[str, ...] = ()
    answer_type: AnswerType = "auto"
    source: str = ""
    meta: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if isinstance(self.gold, str) or any(
            not isinstance(entry, str)  # pyright: ignore[reportUnnecessaryIsInstance]
            for entry in self.gold
        ):
            raise TypeError(f"Problem {self.id!r}: gold must be a tuple of strings, got {self.gold!r}")
        if self.answer_type not in ANSWER_TYPES:
            raise ValueError(
                f"Problem {self.id!r}: answer_type={self.answer_type!r}: "
                f"expected one of {', '.join(ANSWER_TYPES)}"
            )


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion as text.

    prefill is what the chat template already put into the assistant turn (such as an opening think tag); the
    text judged is what the model wrote after it. truncated says that the token limit, not the model, ended
    the text. group and index place the sample in its rollout; policy_version names the weights that wrote
    it.
    """

    problem: Problem
    text: str
    prefill: str = ""
    truncated: bool = False
    group: int = 0
    index: int = 0
    policy_version: int = 0


@dataclass(frozen=True, slots=True)
class StepScore:
    """The value of one reasoning step: half-open character span [start, end) in Sample.text."""

    start: int
    end: int
    value: float

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"StepScore span [{self.start}, {self.end}): expected 0 <= start <= end")


@dataclass(frozen=True, slots=True)
class Part:
    """A named component of a composite score and the weight it was paid at; score is raw, unweighted."""

    name: str
    weight: float
    score: Score


@dataclass(frozen=True, slots=True)
class Score:
    """What a scorer returns for one sample: the same record in the trainer, in files and over HTTP.

    value is None exactly when verdict is not SCORED. steps are ordered and disjoint. version names the scorer
    (or the weights) that produced it. notes hold short facts for people (extracted answer, rung), never
    control flow.
    """

    verdict: Verdict
    value: float | None
    reason: Reason
    steps: tuple[StepScore, ...] = ()
    parts: tuple[Part, ...] = ()
    version: str = ""
    notes: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if (self.value is None) == (self.verdict is Verdict.SCORED):
            raise ValueError(f"Score: value={self.value!r} does not fit verdict {self.verdict.value}")
        for before, after in zip(self.steps, self.steps[1:], strict=False):
            if after.start < before.end:
                raise ValueError(f"Score: steps overlap or are out of order: {before} then {after}")

    @staticmethod
    def scored(
        value: float, reason: Reason, *, version: str = "", notes: Mapping[str, str] | None = None
    ) -> Score:
        """A judged completion."""
        return Score(Verdict.SCORED, value, reason, version=version, notes=notes or {})

    @staticmethod
    def abstained(reason: Reason, *, version: str = "", notes: Mapping[str, str] | None = None) -> Score:
        """The problem, not the completion, rules out a value."""
        return Score(Verdict.ABSTAINED, None, reason, version=version, notes=notes or {})

    @staticmethod
    def failed(reason: Reason, *, version: str = "", notes: Mapping[str, str] | None = None) -> Score:
        """Our own machinery broke."""
        return Score(Verdict.FAILED, None, reason, version=version, notes=notes or {})
