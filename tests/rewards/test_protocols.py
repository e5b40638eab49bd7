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
    assert 100 * measure(questions, ties="first")["majority"] == pytest.approx(93.0)


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
    assert measure([one]) == {
        "pass@1": pytest.approx(2 / 3),
        "majority": 0.5,
        "weighted": 0.5,
        "best_of_n": 0.5,
        "worst_of_n": 0.5,
        "pass@n": 1.0,
    }
    for rule, worth in {"first": 1.0, "lose": 0.0}.items():
        found = measure([one], ties=rule)
        assert [found[name] for name in ("majority", "weighted", "best_of_n", "worst_of_n")] == [worth] * 4
    assert measure([Candidates([None], [False], [None])])["best_of_n"] == 0.0
    # negative logits must not turn a vote around: twice sigmoid(-1) = 0.27 is more than sigmoid(-0.5) = 0.38
    vote = Candidates([-1.0, -1.0, -0.5], [True, True, False], ["a", "a", "b"])
    assert measure([vote])["weighted"] == 1.0
    # as probabilities that they are, 2 * 0.3 is less than 0.7
    sure = Candidates([0.3, 0.3, 0.7], [True, True, False], ["a", "a", "b"], votes=[0.3, 0.3, 0.7])
    assert measure([sure])["weighted"] == 0.0
    with pytest.raises(DataError, match="no questions"):
        measure([])
    with pytest.raises(DataError, match="2 scores"):
        Candidates([1.0, 2.0], [True], ["a"])


def test_votes_are_not_measured_where_answers_are_not_known() -> None:
    known, unknown = Candidates([1.0], [True], ["a"]), Candidates([1.0], [True], None)
    assert {"majority", "weighted"} & measure([known, unknown]).keys() == set()
    assert "majority" in measure([known])


TIED = st.lists(
    st.tuples(st.sampled_from([None, 0.0, 1.0]), st.booleans(), st.sampled_from([None, "a", "b"])),
    min_size=1,
    max_size=6,
)


def slow_pick(rows: list[tuple[float | None, bool, str | None]], ties: str) -> dict[str, float]:
    """Best and majority of completions by lists alone."""

    def settled(worths: list[float]) -> float:
        if not worths:
            return 0.0
        return {"share": sum(worths) / len(worths), "first": worths[0], "lose": min(worths)}[ties]

    scored = [(score, right) for score, right, _ in rows if score is not None]
    top = max((score for score, _ in scored), default=0.0)
    by_answer: dict[str, list[bool]] = {}
    for _, right, answer in rows:
        if answer is not None:
            by_answer.setdefault(answer, []).append(right)
    most = max(map(len, by_answer.values()), default=0)
    return {
        "best_of_n": settled([float(right) for score, right in scored if score == top]),
        "majority": settled([sum(own) / len(own) for own in by_answer.values() if len(own) == most]),
    }


@settings(max_examples=150, deadline=None)
@given(rows=TIED, ties=st.sampled_from(["share", "first", "lose"]))
def test_picks_are_those_of_plain_lists(rows: list[tuple[float | None, bool, str | None]], ties: Any) -> None:
    scores, correct, answers = ([row[place] for row in rows] for place in range(3))
    found = measure([Candidates(scores, correct, answers)], ties=ties)
    for name, value in slow_pick(rows, ties).items():
        assert found[name] == pytest.approx(value), name


@pytest.mark.parametrize("ties", ["share", "first", "lose"])
def test_subsamples_are_exact_or_tend_to_the_mean_over_all_subsets(ties: Any) -> None:
    rows = [(1.0, False, "a"), (1.0, True, "b"), (0.0, True, "b"), (None, False, "a"), (0.0, False, None)]
    scores, correct, answers = ([row[place] for row in rows] for place in range(3))
    question = Candidates(scores, correct, answers)
    subsets = [slow_pick(list(subset), ties) for subset in itertools.combinations(rows, 3)]
    drawn = subsample([question] * 300, 3, trials=9, seed=1, ties=ties)  # of ten subsets
    exact = subsample([question], 3, trials=10, seed=1, ties=ties)
    for name in ("best_of_n", "majority"):
        values = [own[name] for own in subsets]
        assert exact[name].by_question[0] == pytest.approx(np.mean(values))
        assert exact[name].spread == pytest.approx(np.std(values))
        assert np.mean(drawn[name].by_question) == pytest.approx(np.mean(values), abs=0.03)
        assert drawn[name].spread == pytest.approx(np.std(values) / 300**0.5, rel=0.2)


def test_subsamples_of_all_completions_do_not_vary() -> None:
    questions = [Candidates([0.3, 0.2, 0.1], [True, False, True], ["a", "b", "a"])]
    whole = measure(questions)
    spread = subsample(questions, 3, trials=4, seed=0)
    assert {name: found.by_question for name, found in spread.items()} == {
        name: (pytest.approx(value),) for name, value in whole.items()
    }
    assert all(found.spread == pytest.approx(0.0) for found in spread.values())
    # of two out of three, the best is wrong only for {second, third}
    found = subsample(questions, 2, trials=400, seed=0)["best_of_n"]
    assert found.by_question[0] == pytest.approx(2 / 3)
    assert found.spread == pytest.approx((2 / 9) ** 0.5)
    assert found == subsample(questions, 2, trials=400, seed=0)["best_of_n"]
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


SOLUTIONS = st.lists(
    st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.9]), min_size=1, max_size=4).flatmap(
        lambda row: st.tuples(st.just(row), st.integers(-1, len(row) - 1))
    ),
    min_size=2,
    max_size=8,
).filter(lambda rows: {label == -1 for _, label in rows} == {True, False})


@settings(max_examples=150, deadline=None)
@given(rows=SOLUTIONS)
def test_the_threshold_chosen_is_that_of_trying_each(rows: list[tuple[list[float], int]]) -> None:
    values, labels = [row for row, _ in rows], [label for _, label in rows]

    def f1(threshold: float) -> float:
        return step_finding([first_error(row, threshold) for row in values], labels).f1

    tried = sorted({value for row in values for value in row})
    tried.append(math.nextafter(tried[-1], math.inf))
    assert best_threshold(values, labels) == max(
        tried, key=lambda threshold: (round(f1(threshold), 12), -threshold)
    )


def test_a_threshold_is_not_chosen_on_labels_of_no_step() -> None:
    with pytest.raises(DataError, match="label 2 for 1 step values"):
        best_threshold([[0.5], [0.5]], [2, -1])
    with pytest.raises(DataError, match="both kinds"):
        best_threshold([[0.5]], [-1])


def test_bins_of_equal_mass_keep_equal_probabilities_together() -> None:
    # four of 0.2 and two of 0.9 in three bins of two: all 0.2 stay in the first, the second is empty
    found = calibrate([0.2] * 4 + [0.9] * 2, [True] + [False] * 3 + [True] * 2, bins=3, binning="mass")
    assert [(row.low, row.high, row.count) for row in found.bins] == [(0.2, 0.2, 4), (0.9, 0.9, 2)]
    assert found.ece == pytest.approx((4 * 0.05 + 2 * 0.1) / 6)


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
