"""Protocols against figures worked by hand, slow obvious implementations, and the field's known figures."""

import gzip
import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_cases import shared, shared_rows

from rewards.errors import DataError
from rewards.protocols.best_of_n import Candidates, measure, subsample
from rewards.protocols.calibration import calibrate
from rewards.protocols.discrimination import auc, auc_within, pair_accuracy, top_one
from rewards.protocols.processbench import best_threshold, first_error, step_finding
from rewards.protocols.steps import StepMeasures, average_precision, measure_steps

SCORES = st.lists(st.tuples(st.integers(-3, 3).map(float), st.booleans()), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def qwen() -> list[dict[str, Any]]:
    return shared_rows("data/rm_scores/qwen_math_rm72b_bo8_math_cot_100.jsonl")


def test_qwen_math_rm_on_eight_samples(qwen: list[dict[str, Any]]) -> None:
    questions = [
        Candidates([row[0] for row in one["pred_score"]], one["score"], [p or None for p in one["pred"]])
        for one in qwen
    ]
    found = {name: 100 * value for name, value in measure(questions).items()}
    assert found["pass@1"] == pytest.approx(91.0)
    assert found["best_of_n"] == pytest.approx(94.0)
    assert found["worst_of_n"] == pytest.approx(86.0)
    assert found["pass@n"] == pytest.approx(96.0)
    assert found["weighted"] == pytest.approx(94.0)
    # 91 outright and four ties, three of them with one right answer of two: 92.5 shared. The known figure
    # gives a tie to the answer listed first, which is right in two of them.
    assert found["majority"] == pytest.approx(92.5)
    assert found["majority_first"] == pytest.approx(93.0)


def test_qwen_math_rm_ranks_and_is_calibrated(qwen: list[dict[str, Any]]) -> None:
    scores = [row[0] for one in qwen for row in one["pred_score"]]
    labels = [right for one in qwen for right in one["score"]]
    questions = [one["idx"] for one in qwen for _ in one["score"]]
    assert auc(scores, labels) == pytest.approx(0.9682, abs=5e-5)
    assert auc_within(scores, labels, questions) == pytest.approx(0.8906, abs=5e-5)
    found = calibrate([1 / (1 + math.exp(-score)) for score in scores], labels)
    assert found.ece == pytest.approx(0.0385, abs=5e-5)
    assert found.brier == pytest.approx(0.038, abs=5e-4)


@pytest.mark.parametrize(
    ("rule", "percent"), [("min", 15.32), ("product", 17.18), ("mean", 15.11), ("last", 18.22)]
)
def test_math_shepherd_on_rewardmath(rule: str, percent: float) -> None:
    aggregate = {"min": min, "product": math.prod, "mean": np.mean, "last": lambda values: values[-1]}[rule]
    with gzip.open(shared("data/rm_scores/rewardmath_Math_Shepherd_reward.jsonl.gz"), "rt") as lines:
        rows = [[aggregate(steps) for steps in json.loads(line)["score"]] for line in lines]
    assert 100 * top_one([row[0] for row in rows], [row[1:] for row in rows]) == pytest.approx(
        percent, abs=5e-3
    )


def test_ties_and_missing_scores_are_shared_not_ordered() -> None:
    one = Candidates([1.0, None, 1.0], [True, True, False], ["a", None, "b"])
    found = measure([one])
    assert found == {
        "pass@1": pytest.approx(2 / 3),
        "majority": 0.5,
        "majority_first": 1.0,
        "weighted": 0.5,
        "best_of_n": 0.5,
        "worst_of_n": 0.5,
        "pass@n": 1.0,
    }
    assert measure([Candidates([None], [False], [None])])["best_of_n"] == 0.0
    # negative logits must not turn a vote around: twice sigmoid(-1) = 0.27 is more than sigmoid(-0.5) = 0.38
    vote = Candidates([-1.0, -1.0, -0.5], [True, True, False], ["a", "a", "b"])
    assert measure([vote])["weighted"] == 1.0
    for wrong in ([], [Candidates([1.0], [True], ["a"])] * 0):
        with pytest.raises(DataError, match="no questions"):
            measure(wrong)
    with pytest.raises(DataError, match="2 scores"):
        Candidates([1.0, 2.0], [True], ["a"])


def test_subsamples_of_all_completions_do_not_vary() -> None:
    questions = [Candidates([0.3, 0.2, 0.1], [True, False, True], ["a", "b", "a"])]
    whole = measure(questions)
    spread = subsample(questions, 3, trials=4, seed=0)
    assert {name: mean for name, (mean, _) in spread.items()} == pytest.approx(whole)
    assert all(deviation == pytest.approx(0.0) for _, deviation in spread.values())
    # of two out of three, the best is wrong only for {second, third}
    mean, deviation = subsample(questions, 2, trials=400, seed=0)["best_of_n"]
    assert mean == pytest.approx(2 / 3, abs=0.1)
    assert deviation > 0.3
    with pytest.raises(DataError, match="1 questions have fewer"):
        subsample(questions, 4, trials=1, seed=0)


@settings(max_examples=100, deadline=None)
@given(rows=SCORES)
def test_auc_is_the_share_of_pairs_won(rows: list[tuple[float, bool]]) -> None:
    right = [score for score, label in rows if label]
    wrong = [score for score, label in rows if not label]
    pairs = [(a > b) + 0.5 * (a == b) for a, b in itertools.product(right, wrong)]
    found = auc([score for score, _ in rows], [label for _, label in rows])
    assert found == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)


def test_difficulty_lifts_the_auc_over_all_and_not_within_questions() -> None:
    # an easy question with one slip, a hard one with one hit; the score only knows the question
    scores, labels = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0], [True, True, False, False, False, True]
    assert auc(scores, labels) == pytest.approx(2 / 3)
    assert auc_within(scores, labels, list("eeehhh")) == 0.5
    assert auc_within(scores[:2], labels[:2], list("ee")) is None
    with pytest.raises(DataError, match="not finite"):
        auc([math.nan], [True])


def test_pairs_are_won_strictly_and_by_subset() -> None:
    found = pair_accuracy([1.0, 0.5, 2.0], [0.0, 0.5, 3.0], ["chat", "chat", "hard"])
    assert found == {"all": pytest.approx(1 / 3), "chat": 0.5, "hard": 0.0}
    with pytest.raises(DataError, match="0 chosen"):
        pair_accuracy([], [], [])


def test_calibration_by_hand() -> None:
    # bins [0, .5): 0.2 and 0.4, one right: |0.5 - 0.3| * 2; [.5, 1]: 1.0, right: 0. ECE 0.4 / 3.
    found = calibrate([0.2, 0.4, 1.0], [False, True, True], bins=2)
    assert found.ece == pytest.approx(0.4 / 3)
    assert found.brier == pytest.approx((0.04 + 0.36) / 3)
    assert [(row.count, row.accuracy) for row in found.bins] == [(2, 0.5), (1, 1.0)]
    with pytest.raises(DataError, match="outside"):
        calibrate([3.5], [True])


def test_processbench_by_hand() -> None:
    # wrong solutions: found, missed by one, missed; right: one of two said to be right
    found = step_finding([2, 1, -1, -1, 0], [2, 0, 3, -1, -1])
    assert (found.error, found.correct) == (pytest.approx(1 / 3), 0.5)
    assert found.f1 == pytest.approx(0.4)
    assert step_finding([-1, -1], [0, -1]).f1 == 0.0  # always "right"
    assert step_finding([1, 1], [0, -1]).f1 == 0.0  # nothing right at all: 0, not a division by zero
    with pytest.raises(DataError, match="right and wrong"):
        step_finding([0], [0])
    assert first_error([0.5, 0.6], 0.5) == -1


def test_the_threshold_chosen_is_the_smallest_of_the_best() -> None:
    values, labels = [[0.9, 0.3], [0.8, 0.35], [0.7, 0.6]], [1, 1, -1]
    threshold = best_threshold(values, labels)
    assert threshold == 0.6
    assert step_finding([first_error(row, threshold) for row in values], labels).f1 == 1.0


def test_step_measures_by_hand() -> None:
    # labelled: right 0.9 and 0.6, wrong 0.2 and 0.7; the right ones win three of four pairs
    values, labels = [[0.9, 0.2, 0.1], [0.6, 0.7]], [[True, False, None], [True, False]]
    found = measure_steps(values, labels)
    assert found.auc == 0.75
    # by ascending value: wrong, right, wrong, right: half of 1 and half of 2/3
    assert found.error_ap == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert found.first_error_recall == 0.5
    assert measure_steps([[0.9]], [[True]]) == StepMeasures(None, None, None)
    with pytest.raises(DataError, match="different lengths"):
        measure_steps([[0.9, 0.1]], [[True]])


@settings(max_examples=100, deadline=None)
@given(rows=SCORES)
def test_average_precision_is_the_step_sum_over_thresholds(rows: list[tuple[float, bool]]) -> None:
    total, recall, area = sum(label for _, label in rows), 0.0, 0.0
    for threshold in sorted({score for score, _ in rows}, reverse=True):
        above = [label for score, label in rows if score >= threshold]
        new = sum(above) / total if total else 0.0
        area += (new - recall) * sum(above) / len(above)
        recall = new
    found = average_precision([score for score, _ in rows], [label for _, label in rows])
    assert found == (pytest.approx(area) if total else None)
