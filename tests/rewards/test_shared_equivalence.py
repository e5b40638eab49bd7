"""The shared cases through the whole pipeline: agreement per slice, false positives, derived negatives.

Rows marked as conventions are left out, as are rows that need a protocol of their own.
"""

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from shared_cases import shared, shared_rows

from rewards.types import Problem, Reason, Sample, Score
from rewards.verifiers.accuracy import AccuracyVerifier
from rewards.verifiers.equivalence import (
    AlgebraTask,
    Decision,
    EquivalenceSettings,
    Gold,
    decide,
    prepare_gold,
)
from rewards.verifiers.equivalence.compare import equal
from rewards.verifiers.equivalence.decide import cheap_rules, read
from rewards.verifiers.equivalence.normalise import clean

DEFAULT = EquivalenceSettings()
_PLAIN = re.compile(r"\$?(-?)\\?(?:[dt]?frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+)|(\d+(?:\.\d+)?))\$?\Z")


def scored(rows: list[dict[str, Any]]) -> list[Score]:
    """The rows as samples, scored in one batch with default settings."""
    samples: list[Sample] = []
    for number, row in enumerate(rows):
        gold = row["gold"] if isinstance(row["gold"], list) else [row["gold"]]
        samples.append(Sample(Problem(str(number), "", tuple(gold)), row["prediction"]))
    return AccuracyVerifier().score(samples)


def judged_rows(name: str) -> Iterator[tuple[dict[str, Any], bool]]:
    """Undisputed rows and whether each earned the reward."""
    rows = [row for row in shared_rows(name) if not row["convention"] and row["expected"] is not None]
    for row, score in zip(rows, scored(rows), strict=True):
        yield row, score.value == 1.0


def test_slices_of_the_verify_cases() -> None:
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    accepted: list[str] = []
    for row, got in judged_rows("cases/verify.jsonl"):
        total[row["slice"]] += 1
        right[row["slice"]] += got is row["expected"]
        if got and not row["expected"]:
            accepted.append(row["id"])
    assert total["eqv"] > 600
    assert (right["eqv"] + right["ext"]) / (total["eqv"] + total["ext"]) >= 0.96
    assert right["mcq"] / total["mcq"] >= 0.95
    assert right["latex"] / total["latex"] >= 0.95
    assert len(accepted) <= 3, accepted


def test_reported_cases() -> None:
    verdicts = list(judged_rows("cases/reported.jsonl"))
    assert sum(got is row["expected"] for row, got in verdicts) >= 0.95 * len(verdicts)
    assert not [row["id"] for row, got in verdicts if got and not row["expected"]]


def test_attacks_earn_nothing_and_honest_forms_pass() -> None:
    assert not [row["id"] for row, got in judged_rows("cases/attacks.jsonl") if got is not row["expected"]]


def value_of(text: str) -> Fraction | None:
    """A plainly written rational, read without the engine."""
    match = _PLAIN.match(text.strip())
    if match is None:
        return None
    sign, top, bottom, over, under, plain = match.groups()
    value = Fraction(plain) if plain else Fraction(int(top or over), int(bottom or under) or 1)
    return -value if sign else value


def test_no_gold_accepts_the_different_number_of_another_case() -> None:
    golds: defaultdict[str, set[str]] = defaultdict(set)
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for row in shared_rows("cases/verify.jsonl"):
        if row["form"] == "answer-only" and isinstance(row["gold"], str):
            golds[row["kind"]].add(row["gold"])
            answers[row["kind"]].add(row["prediction"])
    pairs = 0
    for kind, texts in golds.items():
        numeric = [(answer, value_of(answer)) for answer in answers[kind] | texts]
        for text in texts:
            gold = prepare_gold((text,), "auto", DEFAULT)
            value = value_of(text)
            if value is None or isinstance(gold, Reason):
                continue
            for answer, other in numeric:
                if other is not None and abs(other - value) > abs(value) / 10**6:  # no rounding of it
                    pairs += 1
                    found = decide(gold, answer, DEFAULT)
                    assert isinstance(found, Decision), (text, answer)
                    assert not found.equal, (text, answer)
    assert pairs > 3000


def dataset_golds() -> Iterator[tuple[str, str]]:
    """(data set, gold) of GSM8K, MATH-500 and svamp."""
    train = gzip.decompress(shared("data/gsm8k/train.jsonl.gz").read_bytes()).decode()
    for line in train.splitlines():
        yield "gsm8k", json.loads(line)["answer"].rpartition("####")[2].strip()
    for row in shared_rows("data/gsm8k/test.jsonl"):
        yield "gsm8k", row["answer"].rpartition("####")[2].strip()
    for row in shared_rows("data/math/math500_test.jsonl"):
        yield "math500", row["answer"]
    for row in shared_rows("data/benchmarks/svamp.jsonl"):
        yield "svamp", str(row["Answer"])


def test_every_gold_of_the_data_sets_verifies_against_itself() -> None:
    """As a string, and, where it is mathematics, by what it means alone."""
    types: Counter[str] = Counter()
    for source, text in dataset_golds():
        gold = prepare_gold((text,), "auto", DEFAULT)
        assert isinstance(gold, Gold), (source, text, gold)
        types[gold.answer_type] += 1
        assert decide(gold, text, DEFAULT) == Decision(True, Reason.MATCH_STRING), (source, text)
        if gold.parsed is not None:
            readings = read(clean(text), gold, DEFAULT)
            assert any(equal(gold.parsed, reading, cheap_rules(DEFAULT)) for reading in readings), text
    assert types["text"] < 0.01 * types.total()


@pytest.mark.parametrize("row", range(30))
def test_hanging_inputs_are_decided_in_this_process(row: int) -> None:
    """The static limits alone keep this process out of trouble; the workers bound the rest."""
    case = shared_rows("cases/hang.jsonl")[row]
    for text in (case["prediction"], case["prediction"].removeprefix("\\boxed{").removesuffix("}")):
        gold = prepare_gold((case["gold"],), "auto", DEFAULT)
        if isinstance(gold, Gold):
            assert isinstance(decide(gold, text, DEFAULT), Decision | AlgebraTask)
        else:  # over the size limits: the problem abstains, whatever the completion says
            assert gold is Reason.INVALID_GOLD
