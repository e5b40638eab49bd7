"""What the replay buffer keeps: whole groups, their checks, and the rows they become in a Parquet shard.

A row is one completion; the rows of a group follow each other. Every column is a plain or nested Arrow type
(no maps, no pickles), so that pyarrow, datasets and DuckDB read a shard alike. Knows nothing of what is kept,
drawn or evicted. A lone surrogate, which no UTF-8 file can hold, is stored as U+FFFD: spans stay where they
were.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

from rewards.errors import DataError
from rewards.questions import hash64, question_hash
from rewards.scorer import Scorer
from rewards.types import Part, Problem, Reason, Sample, Score, StepScore, Verdict

# pyarrow has no types; Any keeps the strict checker to what is ours.
pa: Any = importlib.import_module("pyarrow")

_SURROGATE = re.compile("[\ud800-\udfff]")
_STEPS: Any = pa.list_(pa.struct([("start", pa.int32()), ("end", pa.int32()), ("value", pa.float64())]))
_PAIRS: Any = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
_SCORE: list[tuple[str, Any]] = [
    ("verdict", pa.string()),
    ("value", pa.float64()),
    ("reason", pa.string()),
    ("version", pa.string()),
    ("notes", _PAIRS),
    ("steps", _STEPS),
]
SCHEMA: Any = pa.schema(
    [
        ("round", pa.int32()),
        ("group", pa.int32()),  # place of the group in its shard
        ("index", pa.int32()),
        ("policy_version", pa.int64()),
        ("reward_version", pa.string()),
        ("problem_id", pa.string()),
        ("prompt", pa.string()),
        ("gold", pa.list_(pa.string())),
        ("answer_type", pa.string()),
        ("source", pa.string()),
        ("meta", _PAIRS),
        ("question", pa.uint64()),  # question_hash
        ("rollout_group", pa.int32()),  # Sample.group
        ("prefill", pa.string()),
        ("text", pa.string()),
        ("text_hash", pa.uint64()),
        ("truncated", pa.bool_()),
        ("label", pa.bool_()),
        *_SCORE,
        ("parts", pa.list_(pa.struct([("name", pa.string()), ("weight", pa.float64()), *_SCORE]))),
    ],
    metadata={"plumbline": "replay shard 1"},
)
"""Of a shard; the names are those of the fields of Problem, Sample, Score and ReplayGroup."""


@dataclass(frozen=True, slots=True)
class ReplayGroup:
    """One whole group: the completions of one problem by one policy, scored by one version of the reward.

    labels: what the verifier says of each completion: right, wrong, or None where it could not tell; a
    learned score is never a label. reward_version: of the reward model (or reward) behind the scores. round:
    of the outer iteration, from 0.

    Raises:
        DataError: on a partial group, and where two problems, policies or versions of a scorer meet in one.
    """

    samples: tuple[Sample, ...]
    scores: tuple[Score, ...]
    labels: tuple[bool | None, ...]
    reward_version: str
    round: int

    def __post_init__(self) -> None:
        if not self.samples:
            raise DataError("ReplayGroup: no samples: expected the whole group of a problem")
        where = f"ReplayGroup of problem {self.problem.id!r}"
        if not len(self.samples) == len(self.scores) == len(self.labels):
            raise DataError(
                f"{where}: {len(self.samples)} samples, {len(self.scores)} scores and {len(self.labels)} "
                "labels: expected one score and one label for each sample"
            )
        if any(sample.problem != self.problem for sample in self.samples):
            raise DataError(f"{where}: samples of several problems: expected one problem a group")
        if len({sample.policy_version for sample in self.samples}) > 1:
            raise DataError(f"{where}: samples of several policies: expected one policy version a group")
        if self.round < 0:
            raise DataError(f"{where}: round={self.round}: expected 0 or more")
        self._check_versions(where)

    @property
    def problem(self) -> Problem:
        """That of every sample."""
        return self.samples[0].problem

    @property
    def policy_version(self) -> int:
        """That of every sample."""
        return self.samples[0].policy_version

    def _check_versions(self, where: str) -> None:
        versions: dict[str, set[str]] = {}
        for score in self.scores:
            # What our own fault left unscored may know no version; a composite's own only lists its parts'.
            named = [(part.name, part.score) for part in score.parts] or [("", score)]
            for name, own in named:
                if own.parts:
                    raise DataError(
                        f"{where}: part {name!r} has parts of its own: expected one level of parts"
                    )
                if own.verdict is not Verdict.FAILED:
                    versions.setdefault(name, set()).add(own.version)
        for name, found in versions.items():
            if len(found) > 1:
                raise DataError(
                    f"{where}: scores{f' of {name!r}' if name else ''} of versions "
                    f"{', '.join(sorted(found))}: they differ in scale: rescore the group with one of them"
                )


def rescore(groups: Iterable[ReplayGroup], scorer: Scorer, reward_version: str) -> Iterator[ReplayGroup]:
    """The groups scored anew by a scorer of the version named; labels and everything else stay.

    The only way from one version to another: nothing stored is ever rescored in passing.
    """
    for group in groups:
        scores = tuple(scorer.score(group.samples))
        yield replace(group, scores=scores, reward_version=reward_version)


def text_hash(text: str) -> int:
    """64 bits of a completion's text, the same however its spaces and lines are broken."""
    return hash64(" ".join(text.split()))


def table_of(groups: Sequence[ReplayGroup], first: int) -> Any:
    """The Arrow table of the groups, of SCHEMA; `first` is the place of the first of them in its shard."""
    rows = [row for place, group in enumerate(groups, first) for row in _rows(group, place)]
    return pa.Table.from_pylist(rows, SCHEMA)


def groups_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[ReplayGroup]:
    """The groups of rows in the order of a shard."""
    for _, members in groupby(rows, key=lambda row: (row["round"], row["group"])):
        group = list(members)
        yield ReplayGroup(
            tuple(sample_of(row) for row in group),
            tuple(score_of(row) for row in group),
            tuple(row["label"] for row in group),
            group[0]["reward_version"],
            group[0]["round"],
        )


def sample_of(row: Mapping[str, Any]) -> Sample:
    """The sample of a row, with its problem."""
    problem = Problem(
        row["problem_id"],
        row["prompt"],
        tuple(row["gold"]),
        row["answer_type"],
        row["source"],
        _mapping(row["meta"]),
    )
    return Sample(
        problem,
        row["text"],
        row["prefill"],
        row["truncated"],
        row["rollout_group"],
        row["index"],
        row["policy_version"],
    )


def score_of(row: Mapping[str, Any]) -> Score:
    """The score of a row, parts and steps included."""
    parts = tuple(Part(part["name"], part["weight"], _plain_score(part)) for part in row["parts"])
    return replace(_plain_score(row), parts=parts)


def _rows(group: ReplayGroup, place: int) -> Iterator[dict[str, Any]]:
    problem = group.problem
    shared: dict[str, Any] = {
        "round": group.round,
        "group": place,
        "policy_version": group.policy_version,
        "reward_version": _utf8(group.reward_version),
        "problem_id": _utf8(problem.id),
        "prompt": _utf8(problem.prompt),
        "gold": [_utf8(gold) for gold in problem.gold],
        "answer_type": problem.answer_type,
        "source": _utf8(problem.source),
        "meta": _pairs(problem.meta),
        "question": question_hash(problem.prompt),
    }
    for sample, score, label in zip(group.samples, group.scores, group.labels, strict=True):
        yield {
            **shared,
            "index": sample.index,
            "rollout_group": sample.group,
            "prefill": _utf8(sample.prefill),
            "text": _utf8(sample.text),
            "text_hash": text_hash(sample.text),
            "truncated": sample.truncated,
            "label": label,
            **_score_row(score),
            "parts": [
                {"name": part.name, "weight": part.weight, **_score_row(part.score)} for part in score.parts
            ],
        }


def _score_row(score: Score) -> dict[str, Any]:
    return {
        "verdict": score.verdict.value,
        "value": score.value,
        "reason": score.reason.value,
        "version": _utf8(score.version),
        "notes": _pairs(score.notes),
        "steps": [{"start": step.start, "end": step.end, "value": step.value} for step in score.steps],
    }


def _plain_score(row: Mapping[str, Any]) -> Score:
    steps = tuple(StepScore(step["start"], step["end"], step["value"]) for step in row["steps"])
    return Score(
        Verdict(row["verdict"]),
        row["value"],
        Reason(row["reason"]),
        steps=steps,
        version=row["version"],
        notes=_mapping(row["notes"]),
    )


def _pairs(mapping: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": _utf8(key), "value": _utf8(value)} for key, value in mapping.items()]


def _mapping(pairs: object) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in cast(list[dict[str, str]], pairs)}


def _utf8(text: str) -> str:
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
