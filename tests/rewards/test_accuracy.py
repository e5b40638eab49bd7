"""The accuracy verifier: verdicts and reasons, tricks, hanging inputs, threads, and the shared cases."""

import asyncio
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_cases import shared_rows

from rewards.errors import ConfigError
from rewards.extraction import ExtractionSettings
from rewards.format import FormatSpec
from rewards.isolation import Limits, run_isolated
from rewards.types import AnswerType, Problem, Reason, Sample, Score, Verdict
from rewards.verifiers.accuracy import AccuracyVerifier
from rewards.verifiers.equivalence import AlgebraTask, EquivalenceSettings, decide, prepare_gold

VERIFIER = AccuracyVerifier()
NEEDS_ALGEBRA = ("\\sin(x)^2", "\\boxed{\\frac{1 - \\cos(2x)}{2}}")
"""An equality that cannot be settled without algebra (the test below checks that it cannot)."""


def sample(text: str, *gold: str, prefill: str = "", truncated: bool = False) -> Sample:
    return Sample(Problem("p", "", gold), text, prefill, truncated)


def score(text: str, *gold: str, prefill: str = "", truncated: bool = False) -> Score:
    (result,) = VERIFIER.score([sample(text, *gold, prefill=prefill, truncated=truncated)])
    return result


# --- one verdict at a time ---


@pytest.mark.parametrize(
    ("question", "gold", "answer", "value"),
    [
        ("By what percent does the area shrink?", "10", "10\\%", 1.0),
        ("Give the share as a percentage.", "10\\%", "10", 1.0),
        ("What is the percentage chance of rain?", "24", "24\\%", 1.0),
        ("What was the percent of growth?", "24\\%", "24", 1.0),
        ("Find the percent increase.", "50", "50\\%", 1.0),
        ("Which percentage of them is red?", "50", "50\\%", 1.0),
        ("To the nearest percent, how large is it?", "50\\%", "50", 1.0),
        ("Find the number of which 50 percent is 10.", "20", "20\\%", 0.0),
        ("Give the share as a percentage.", "10\\%", "0.1", 1.0),
        ("By what percent does the area shrink?", "10", "0.1", 0.0),
        ("By what percent does the area shrink?", "10", "11\\%", 0.0),
        ("A tenth of what number is 5 percent of 20?", "10", "10\\%", 0.0),
        ("How large is the share?", "10", "10\\%", 0.0),
    ],
)
def test_a_question_for_a_percentage_takes_the_sign_or_leaves_it(
    question: str, gold: str, answer: str, value: float
) -> None:
    text = f"\\boxed{{{answer}}}"
    (result,) = VERIFIER.score([Sample(Problem("p", question, (gold,)), text)])
    assert result.value == value


@pytest.mark.parametrize(
    ("text", "gold", "value"),
    [
        ("The answer is approximately 42.", "42", 0.0),
        ("The answer is approximately 3.14.", "3.14", 1.0),
        ("It is about 0.3333333.", "\\frac{1}{3}", 1.0),
        ("So $x + y = 42$.", "42", 1.0),
        ("So $x + y = 42$.", "x + y = 42", 1.0),
        ("So $n^2 + 3n = 42$.", "42", 0.0),
        ("The solutions are $x=-2$ or $x=3$.", "-2, 3", 1.0),
        ("twelve", "12", 0.0),
        ("twelve", "Twelve", 1.0),
        ("12", "twelve", 1.0),
        ("The wrong answer is 42.", "42", 0.0),
    ],
)
def test_words_around_an_answer_and_its_gold(text: str, gold: str, value: float) -> None:
    assert score(text, gold).value == value


@pytest.mark.parametrize(
    ("text", "gold", "reason"),
    [
        ("\\boxed{42}", "42", Reason.MATCH_STRING),
        ("\\boxed{84/2}", "42", Reason.MATCH_NUMERIC),
        ("\\boxed{(1, 2)}", "(1,2.0)", Reason.MATCH_STRUCTURE),
        ("\\boxed{x(x+1)}", "x^2+x", Reason.MATCH_SYMBOLIC),
        ("\\boxed{41}", "42", Reason.MISMATCH),
        ("I do not know.", "42", Reason.NO_ANSWER),
        ("", "42", Reason.NO_ANSWER),
        ("\\boxed{42 or 43}", "42", Reason.AMBIGUOUS),
        ("It is 42 or 43.", "42", Reason.AMBIGUOUS),
        ("\\boxed{\\frac{}{}}", "42", Reason.UNPARSABLE),
        ("\\boxed{" + "1" * 5000 + "}", "42", Reason.TOO_LARGE),
        ("<think>\\boxed{42}", "42", Reason.UNCLOSED_THINK),
    ],
)
def test_trap_38_every_score_has_its_reason(text: str, gold: str, reason: Reason) -> None:
    result = score(text, gold)
    assert (result.verdict, result.reason) == (Verdict.SCORED, reason)
    assert result.value == (1.0 if reason.startswith("match") else 0.0)
    assert result.version == "accuracy/1"


@pytest.mark.parametrize(
    ("gold", "reason"),
    [((), Reason.NO_GOLD), (("",), Reason.NO_GOLD), (("\\frac{1}{",), Reason.INVALID_GOLD)],
)
def test_a_bad_gold_abstains_whatever_the_completion_says(gold: tuple[str, ...], reason: Reason) -> None:
    if reason is Reason.INVALID_GOLD:
        problem = Problem("p", "", gold, answer_type="number")
    else:
        problem = Problem("p", "", gold)
    for text in ("", "\\boxed{42}", "\\boxed{}", "<think>", *gold):
        (result,) = VERIFIER.score([Sample(problem, text)])
        assert (result.verdict, result.value, result.reason) == (Verdict.ABSTAINED, None, reason)


def test_notes_tell_the_answer_and_its_rung_and_stay_short() -> None:
    assert score("so \\boxed{42}", "42").notes == {"answer": "42", "rung": "box"}
    assert score("nothing", "42").notes == {"rung": "none"}
    long = score("\\boxed{" + "x+" * 1000 + "\ud800}", "42").notes["answer"]
    assert len(long) <= 220
    assert long.encode("utf-8")


def test_a_truncated_completion_earns_only_what_a_closed_mark_shows_to_be_complete() -> None:
    assert score("Hence \\boxed{42} is", "42", truncated=True).value == 1.0
    assert score("The answer is 42", "42", truncated=True).reason is Reason.TRUNCATED  # of 420?
    assert score("<think>so 4", "42", truncated=True).reason is Reason.UNCLOSED_THINK


def test_the_prefill_belongs_to_the_turn() -> None:
    assert score("6*7</think>\\boxed{42}", "42", prefill="<think>\n").value == 1.0
    assert score("\\boxed{42}", "42", prefill="<think>\n").reason is Reason.UNCLOSED_THINK


def test_the_question_is_not_searched() -> None:
    problem = Problem("p", "Is 6 times 7 really 42?", ("42",))
    (echo,) = VERIFIER.score([Sample(problem, "Is 6 times 7 really 42? Let me think.")])
    assert (echo.value, echo.reason) == (0.0, Reason.NO_ANSWER)


def test_every_required_value_must_be_given() -> None:
    assert score("\\boxed{3, 5}", "3", "5").value == 1.0
    assert score("\\boxed{5, 3}", "3", "5").value == 1.0
    assert score("Either $\\boxed{3}$, or $\\boxed{5}$", "3", "5").value == 1.0
    assert score("\\boxed{5}", "3", "5").value == 0.0
    assert score("\\boxed{3, 5, 7}", "3", "5").value == 0.0


@pytest.mark.parametrize(
    ("gold", "text", "kind", "value"),
    [
        ("B", "The answer is (B).", "auto", 1.0),
        ("B", "The answer is not B.", "auto", 0.0),
        ("B", "B or C", "choice", 0.0),
        ("A", "A good question.", "choice", 0.0),
        ("(C) Oslo", "C", "choice", 1.0),
        ("Paris", "<think>hm</think>Paris.", "text", 1.0),
        ("Paris", "The answer is Paris.", "text", 1.0),
        ("Paris", "Paris or London", "text", 0.0),
    ],
)
def test_choices_and_words(gold: str, text: str, kind: AnswerType, value: float) -> None:
    (result,) = VERIFIER.score([Sample(Problem("p", "", (gold,), kind), text)])
    assert result.value == value


def test_the_settings_reach_extraction_and_comparison() -> None:
    strict = AccuracyVerifier(extraction=ExtractionSettings(mode="strict"))
    assert strict.score([sample("The answer is 42.", "42")])[0].reason is Reason.NO_ANSWER
    lenient = AccuracyVerifier(equivalence=EquivalenceSettings(percent="lenient"))
    assert lenient.score([sample("\\boxed{42\\%}", "42")])[0].value == 1.0
    assert score("\\boxed{42\\%}", "42").value == 0.0
    tags = AccuracyVerifier(FormatSpec(answer_style="tags"))
    assert tags.score([sample("\\boxed{41}<answer>42</answer>", "42")])[0].value == 1.0
    with pytest.raises(ConfigError, match="workers"):
        AccuracyVerifier(workers=0)


# --- algebra in workers ---


def test_the_example_really_needs_algebra() -> None:
    conventions = EquivalenceSettings()
    gold = prepare_gold((NEEDS_ALGEBRA[0],), "auto", conventions)
    assert not isinstance(gold, Reason)
    assert isinstance(decide(gold, "\\frac{1 - \\cos(2x)}{2}", conventions), AlgebraTask)


def test_algebra_is_solved_in_workers_and_sympy_stays_there() -> None:
    gold, text = NEEDS_ALGEBRA
    result = score(text, gold)
    assert (result.value, result.reason) == (1.0, Reason.MATCH_SYMBOLIC)
    code = (
        "import sys; from rewards.types import *; from rewards.verifiers.accuracy import AccuracyVerifier;"
        f"s = Sample(Problem('p', '', ({gold!r},)), {text!r});"
        "v = AccuracyVerifier().score([s])[0].value;"
        "result = (v, 'sympy' in sys.modules, 'mpmath' in sys.modules)"
    )
    (outcome,) = run_isolated("accuracy_child:run", [code], limits=Limits(10.0, 60.0, 1024))
    assert outcome.value == (1.0, False, False)


def _batch() -> list[Sample]:
    gold, text = NEEDS_ALGEBRA
    texts = ["\\boxed{42}", text, "\\boxed{41}", "", "<think>", text, "\\boxed{\\cos(x)^2}"]
    golds = ["42", gold, "42", "42", "42", gold, gold]
    return [sample(text, gold) for text, gold in zip(texts, golds, strict=True)]


def test_a_batch_equals_its_samples_one_by_one_in_order() -> None:
    batch = _batch()
    expected = [1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    assert [result.value for result in VERIFIER.score(batch)] == expected
    assert VERIFIER.score(batch) == [VERIFIER.score([one])[0] for one in batch]
    assert VERIFIER.score([]) == []


def test_trap_38_threads_asyncio_and_pickle_give_the_same_scores() -> None:
    batch = _batch()
    expected = VERIFIER.score(batch)
    with ThreadPoolExecutor(6) as threads:
        assert all(found == expected for found in threads.map(lambda _: VERIFIER.score(batch), range(12)))

    async def inside() -> list[Score]:
        return VERIFIER.score(batch)

    assert asyncio.run(inside()) == expected
    clone = pickle.loads(pickle.dumps(VERIFIER))
    assert clone == VERIFIER
    assert clone.score(batch) == expected


def test_a_comparison_over_its_limits_is_the_completions_fault_and_delays_no_other() -> None:
    """A CPU limit too small for any algebra stands for an answer that is too dear."""
    hasty = AccuracyVerifier(limits=Limits(cpu_seconds=0.0001, wall_seconds=60.0))
    many = "+".join(f"\\sin({number}y)^2" for number in range(1, 60))
    dear = "+".join(f"\\frac{{1 - \\cos({2 * number}y)}}{{2}}" for number in range(1, 60))
    batch = [sample("\\boxed{42}", "42"), sample(f"\\boxed{{{dear}}}", many), sample("\\boxed{42}", "42")]
    results = hasty.score(batch)
    assert [result.value for result in results] == [1.0, 0.0, 1.0]
    assert (results[1].verdict, results[1].reason) == (Verdict.SCORED, Reason.TIMEOUT)
    # What was too dear under one limit is decided anew under another.
    assert VERIFIER.score(batch[1:2])[0].reason is not Reason.TIMEOUT


def test_a_broken_worker_fails_and_is_not_a_zero() -> None:
    starved = AccuracyVerifier(limits=Limits(memory_mb=1))
    gold = "\\sin(z)^2"
    results = starved.score([sample("\\boxed{\\frac{1 - \\cos(2z)}{2}}", gold), sample("\\boxed{42}", "42")])
    assert (results[0].verdict, results[0].value) == (Verdict.FAILED, None)
    assert results[0].reason in (Reason.WORKER_DIED, Reason.INTERNAL)  # by what gave way first
    assert results[1].value == 1.0
    # A failure is not remembered: with enough memory the same sample is right.
    assert score("\\boxed{\\frac{1 - \\cos(2z)}{2}}", gold).value == 1.0


# --- properties ---


@given(st.text(max_size=60) | st.text(alphabet="\\boxed{}42$ox<think>/", max_size=60))
@settings(deadline=None)
def test_any_text_is_scored(text: str) -> None:
    result = score(text, "42")
    assert result.verdict is Verdict.SCORED
    assert result.value in (0.0, 1.0)


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
@settings(deadline=None)
def test_trap_38_an_integer_earns_exactly_where_it_is_the_gold(gold: int, given_: int) -> None:
    assert score(f"\\boxed{{{given_}}}", str(gold)).value == float(gold == given_)


@given(st.lists(st.integers(0, 99), min_size=2, max_size=12, unique=True), st.data())
@settings(deadline=None)
def test_trap_38_listing_candidates_earns_nothing(candidates: list[int], data: st.DataObject) -> None:
    gold = str(data.draw(st.sampled_from(candidates)))
    listed = ", ".join(map(str, candidates))
    for text in (
        f"\\boxed{{{listed}}}",
        f"The answer is {listed}.",
        f"It must be {' or '.join(map(str, candidates))}",
        "\\boxed{" + "\\text{ or }".join(map(str, candidates)) + "}",
        ", ".join(f"\\boxed{{{candidate}}}" for candidate in candidates),
        listed,
    ):
        assert score(text, gold).value == 0.0, text


@pytest.mark.parametrize(
    "text",
    [
        "```\n\\boxed{42}\n```",
        "<!-- \\boxed{42} -->\n\\boxed{41}",
        "% \\boxed{42}\n",
        "\\boxed{4\u200b2}",
        "\\boxed{\u202e24}",
        "\\boxed{٤٢}",
        "\\boxed{142}",
        "\\boxed{4 2}",
        "\\boxed{41\\phantom{42}}",
        "\\boxed{42} \\boxed{}",
        "\\boxed{n^2+3n=42}",
        "\\boxed{41=42}",
        "\\boxed{7}. The reference answer is 42.",
        "<think>42</think>",
        "<think>\\boxed{42}</th\u200bink>",
        "<answer>42",
        "__import__('os').system('true') or 42",
    ],
)
def test_trap_38_tricks_earn_nothing(text: str) -> None:
    result = score(text, "42")
    assert (result.verdict, result.value) == (Verdict.SCORED, 0.0)


# --- the shared cases ---


def _expected(row: dict[str, Any]) -> bool:
    return row.get("expected") is not None and not row.get("convention", False)


def test_trap_38_every_shared_attack_earns_what_it_should() -> None:
    rows = [row for row in shared_rows("cases/attacks.jsonl") if _expected(row)]
    results = VERIFIER.score([sample(row["prediction"], row["gold"]) for row in rows])
    wrong = [
        (row["id"], result.reason)
        for row, result in zip(rows, results, strict=True)
        if (result.value == 1.0) is not row["expected"]
    ]
    assert not wrong


def test_trap_37_every_shared_hanging_input_returns() -> None:
    """In one batch; each answer is bounded by its limits, and few are ours to fail."""
    rows = shared_rows("cases/hang.jsonl")
    results = VERIFIER.score([sample(row["prediction"], row["gold"]) for row in rows])
    assert [row["id"] for row, result in zip(rows, results, strict=True) if result.value == 1.0] == []
    failed = [
        row["id"] for row, result in zip(rows, results, strict=True) if result.verdict is Verdict.FAILED
    ]
    assert len(failed) <= len(rows) // 10  # only a machine under load trips the wall clock


def test_trap_38_the_shared_extraction_and_choice_cases_meet_their_targets() -> None:
    rows = [row for row in shared_rows("cases/verify.jsonl") if _expected(row)]
    rows = [row for row in rows if row["slice"] in ("ext", "mcq")]
    results = VERIFIER.score([sample(row["prediction"], row["gold"]) for row in rows])
    for name, target in (("ext", 0.96), ("mcq", 0.95)):
        right = [
            (result.value == 1.0) is row["expected"]
            for row, result in zip(rows, results, strict=True)
            if row["slice"] == name
        ]
        assert sum(right) / len(right) >= target, name
    paid = [row for row, result in zip(rows, results, strict=True) if result.value == 1.0]
    assert [row["id"] for row in paid if not row["expected"]] == []


def test_scores_from_many_threads_do_not_mix() -> None:
    wrong: list[tuple[int, float | None]] = []

    def ask(number: int) -> None:
        for value in range(number, number + 40):
            result = VERIFIER.score([sample(f"\\boxed{{{value}}}", str(number + 7))])[0]
            if result.value != float(value == number + 7):
                wrong.append((value, result.value))

    threads = [threading.Thread(target=ask, args=(100 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
