"""Labelled sets become examples: rows of our own in every layout, and real files with known counts."""

import copy
import json
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_cases import shared

from data_prep.config import LabelledConfig
from data_prep.drops import Drop, DropReason, count_drops
from data_prep.examples import Converted, Reader, convert, evaluation_questions
from data_prep.labelled_sets import count_labels, reader_of
from data_prep.outcome_sets import read_gsm8k_solutions
from data_prep.preference_sets import read_preferences
from data_prep.prm800k import read_prm800k
from data_prep.process_sets import read_math_shepherd, read_processbench
from data_prep.sources import iter_rows
from rewards.errors import DataError
from rewards.labelled import NEUTRAL, SETS, OutcomeExample, PreferenceExample, ProcessExample
from rewards.questions import question_hash

Fields = dict[str, Any]


def read(reader: Reader, *rows: Fields) -> Converted:
    return convert([(f"row {number}", row) for number, row in enumerate(rows, start=1)], reader)


def reasons(converted: Converted) -> list[tuple[str, DropReason]]:
    return [(drop.where, drop.reason) for drop in converted.drops]


# --- outcome


def test_every_model_of_a_row_gives_a_labelled_solution() -> None:
    row = {
        "question": "How many?",
        "ground_truth": "A: 2",
        "small": {"is_correct": False, "solution": "A: 3"},
        "large": {"is_correct": True, "solution": "1+1=<<1+1=2>>2\nA: 2"},
        "mute": {"is_correct": False, "solution": " "},
    }
    found = read(read_gsm8k_solutions, row)
    name, source = "gsm8k_solutions-000001", "gsm8k_solutions"
    assert found.examples == (
        OutcomeExample("How many?", "A: 3", 0.0, source, f"{name}-small", {"model": "small"}),
        OutcomeExample(
            "How many?", row["large"]["solution"], 1.0, source, f"{name}-large", {"model": "large"}
        ),
    )
    assert reasons(found) == [("row 1, field 'mute'", DropReason.EMPTY_COMPLETION)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "ground_truth": "1"}, "row 1: no field holds an object {is_correct, solution}"),
        ({"ground_truth": "1"}, "row 1, field 'question': expected a string"),
        (
            {"question": "q", "m": {"is_correct": 1, "solution": "s"}},
            "row 1, field 'm', field 'is_correct': expected true or false, got int",
        ),
    ],
)
def test_a_row_that_is_no_set_of_solutions_is_refused(row: Fields, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        read(read_gsm8k_solutions, row)


# --- PRM800K


def rated(text: str, rating: int | None, flagged: bool = False) -> Fields:
    return {"text": text, "rating": rating, "flagged": flagged}


def step(*completions: Fields, chosen: int | None = 0, human: str | None = None) -> Fields:
    written = None if human is None else {"text": human, "rating": None, "source": "human", "flagged": False}
    return {"completions": list(completions), "human_completion": written, "chosen_completion": chosen}


def solved(*steps: Fields, end: str = "solution", **more: object) -> Fields:
    return {
        "is_quality_control_question": False,
        "is_initial_screening_question": False,
        "question": {"problem": "What is x?", "ground_truth_answer": "2"},
        "label": {"steps": list(steps), "finish_reason": end},
    } | more


def texts(found: Converted) -> list[tuple[tuple[str, ...], tuple[object, ...]]]:
    return [
        (example.steps, example.labels) for example in found.examples if isinstance(example, ProcessExample)
    ]


def test_a_solution_follows_the_chosen_completions_and_alternatives_end_theirs() -> None:
    row = solved(
        step(rated("a", 1), rated("a'", -1)),
        step(rated("b'", 0), rated("b", 0), chosen=1),
        step(rated("c", 1)),
    )
    found = read(read_prm800k, row)
    assert texts(found) == [
        (("a\n", "b\n", "c"), (1.0, NEUTRAL, 1.0)),
        (("a'",), (0.0,)),
        # the judgement of `a` is in the solution only, so that it counts once
        (("a\n", "b'"), (None, NEUTRAL)),
    ]
    assert [example.id for example in found.examples] == [f"prm800k-000001-{n}" for n in range(3)]
    alone = read(partial(read_prm800k, alternatives=False), row)
    assert texts(alone) == texts(found)[:1]


def test_a_step_that_the_labeller_wrote_is_right() -> None:
    row = solved(step(rated("a'", -1), chosen=None, human="a"), step(rated("b", 1)))
    assert texts(read(read_prm800k, row)) == [(("a\n", "b"), (1.0, 1.0)), (("a'",), (0.0,))]


def test_phase_2_stops_at_the_first_error_whose_own_completion_is_the_first() -> None:
    row = solved(step(rated("a", 1)), step(rated("b", -1), rated("b'", 1), chosen=None), end="found_error")
    row["question"]["pre_generated_steps"] = ["a", "b", "never judged"]
    assert texts(read(read_prm800k, row)) == [(("a\n", "b"), (1.0, 0.0)), (("a\n", "b'"), (None, 1.0))]


def test_the_answer_block_becomes_a_line() -> None:
    row = solved(step(rated("It is 2.\n\n# Answer\n\n2", 1)))
    assert texts(read(read_prm800k, row)) == [(("It is 2.\nAnswer: 2",), (1.0,))]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (solved(step(rated("a", 1)), is_quality_control_question=True), DropReason.QUALITY_CONTROL),
        (solved(step(rated("a", 1)), is_initial_screening_question=True), DropReason.SCREENING),
        (solved(step(rated("a", 1)), end="give_up"), DropReason.GAVE_UP),
        (solved(step(rated("a", 1)), end="bad_problem"), DropReason.BAD_PROBLEM),
        (solved(step(rated("a", 1)), question={"problem": " "}), DropReason.NO_PROMPT),
        (solved(step(rated("a", None))), DropReason.NO_LABEL),
        (solved(), DropReason.NO_LABEL),
    ],
)
def test_what_is_not_for_training_is_dropped(row: Fields, reason: DropReason) -> None:
    found = read(read_prm800k, row)
    assert (found.examples, reasons(found)) == ((), [("row 1", reason)])


def test_a_flagged_step_ends_the_solution_and_a_flagged_alternative_is_left_out() -> None:
    row = solved(step(rated("a", 1)), step(rated("b", 1, flagged=True), rated("b'", 1, flagged=True)))
    found = read(read_prm800k, row)
    assert texts(found) == [(("a",), (1.0,))]
    assert reasons(found) == [
        ("row 1, step 1", DropReason.FLAGGED),
        ("row 1, step 1, completion 1", DropReason.FLAGGED),
    ]


def test_a_step_without_completions_ends_the_solution() -> None:
    end = {"completions": None, "human_completion": None, "chosen_completion": None}
    assert texts(read(read_prm800k, solved(step(rated("a", 1)), end))) == [(("a",), (1.0,))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": "plain text"}, "row 1, field 'question': expected an object, got str"),
        (
            {"label": {"steps": [], "finish_reason": "won"}},
            "'finish_reason': expected one of solution, found_error",
        ),
        ({"label": {"steps": {}, "finish_reason": "solution"}}, "row 1, field 'steps': expected a list"),
        (
            {"label": {"steps": [step(rated("a", 2))], "finish_reason": "solution"}},
            "row 1, step 0, field 'rating': expected -1, 0, 1 or null",
        ),
        (
            {"label": {"steps": [step(rated("a", 1), chosen=1)], "finish_reason": "solution"}},
            "row 1, step 0, field 'chosen_completion': expected the place of one of 1 completions",
        ),
    ],
)
def test_a_row_of_another_layout_than_prm800k_is_refused(change: Fields, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        read(read_prm800k, solved(step(rated("a", 1))) | change)


def test_openr_rows_have_a_label_for_each_tag_or_for_the_last() -> None:
    process = "Step: 1: a ки\nStep: 2: b ки"
    found = read(
        read_prm800k,
        {"question": "q", "process": process, "labels": [1, 0]},
        {"question": "r", "process": process, "label": 0},
        {"question": "s", "process": "Step: 2: b ки", "label": 1},
        {"question": "t", "process": "Step: 1: a Step: 2: b ки", "labels": [1, 0]},
    )
    assert texts(found) == [(("a\n", "b"), (1.0, 0.0)), (("a\n", "b"), (None, 0.0))]
    assert reasons(found) == [("row 3", DropReason.NO_CONTEXT), ("row 4", DropReason.STEP_MARKS)]
    with pytest.raises(DataError, match="row 1, field 'label': expected 0 or 1, got 2"):
        read(read_prm800k, {"question": "q", "process": process, "labels": [1, 2]})


# --- Math-Shepherd


def shepherd(solution: str, signs: str, question: str = "Why + and -?") -> Fields:
    """A row whose tags became the signs, one by one."""
    text = label = f"{question} {solution}"
    for sign in signs:
        label = label.replace("ки", sign, 1)
    return {"input": text, "label": label, "task": "GSM8K"}


def test_math_shepherd_signs_are_those_in_the_place_of_tags() -> None:
    row = shepherd("Step 1: 1 + 1 - 1 = 1 ки\nStep 2: so 1. The answer is: 1 ки", "+-")
    assert read(read_math_shepherd, row).examples == (
        ProcessExample(
            "Why + and -?",
            ("Step 1: 1 + 1 - 1 = 1\n", "Step 2: so 1. The answer is: 1"),
            (1.0, 0.0),
            "math_shepherd",
            "math_shepherd-000001",
            {"task": "GSM8K"},
        ),
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (shepherd("Step 1: a ки\nStep 1: b ки", "++"), DropReason.STEP_MARKS),
        (shepherd("Step 1: a\nStep 2: b ки", "+"), DropReason.STEP_MARKS),
        (shepherd("Step 1: a ки\nStep 2: b", "+"), DropReason.STEP_MARKS),
        (shepherd("Step 1: a ки\nStep 3: b ки", "++"), DropReason.STEP_MARKS),
        (shepherd("Step 1: a ки\nb ки", "++"), DropReason.STEP_MARKS),
        (shepherd("no heading ки", "+"), DropReason.STEP_MARKS),
        (shepherd("Step 1: a ки", "+", question=""), DropReason.NO_PROMPT),
        (shepherd("Step 1: a ки", "?"), DropReason.MISALIGNED),
        (shepherd("Step 1: a ки", "+") | {"label": "Other. Step 1: a +"}, DropReason.MISALIGNED),
        (shepherd("Step 1: a ки", "+") | {"label": "Why + and -? Step 1: a + more"}, DropReason.MISALIGNED),
    ],
)
def test_what_has_no_clear_labels_is_dropped(row: Fields, reason: DropReason) -> None:
    found = read(read_math_shepherd, row)
    assert (found.examples, reasons(found)) == ((), [("row 1", reason)])


# --- ProcessBench


def bench(label: object, steps: Iterable[str] = ("a", "b", "c")) -> Fields:
    return {
        "id": "x-1",
        "generator": "m",
        "problem": "p",
        "steps": list(steps),
        "final_answer_correct": False,
        "label": label,
    }


@pytest.mark.parametrize(
    ("label", "labels"),
    [(-1, (1.0, 1.0, 1.0)), (0, (0.0, None, None)), (1, (1.0, 0.0, None)), (2, (1.0, 1.0, 0.0))],
)
def test_processbench_judges_nothing_after_the_first_error(label: int, labels: tuple[object, ...]) -> None:
    meta = {"generator": "m", "final_answer_correct": "false"}
    steps = ("a\n\n", "b\n\n", "c")
    (example,) = read(read_processbench, bench(label)).examples
    assert example == ProcessExample("p", steps, labels, "processbench", "x-1", meta)  # pyright: ignore


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (bench(3), "row 1, field 'label': expected -1 or the place of one of 3 steps from 0, got 3"),
        (bench("0"), "row 1, field 'label': expected an integer"),
        (bench(-1, steps=()), "one of 0 steps"),
        (bench(0) | {"steps": ["a", 2]}, "row 1, field 'steps': expected a list of strings"),
    ],
)
def test_a_label_that_is_no_step_is_refused(row: Fields, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        read(read_processbench, row)


@pytest.mark.parametrize(("given", "name"), [("x", "x"), (7, "7"), (None, "processbench-000001")])
def test_an_id_of_processbench_may_be_a_number(given: object, name: str) -> None:
    (example,) = read(read_processbench, bench(-1) | {"id": given}).examples
    assert example.id == name


# --- preferences


def chat(*contents: str) -> list[Fields]:
    return [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(contents)]


def pair_of(found: Converted) -> tuple[str, str, str]:
    (example,) = found.examples
    assert isinstance(example, PreferenceExample)
    return example.question, example.chosen, example.rejected


UNRATED = {
    "messages": {"chosen": chat("q", "good"), "rejected": chat("q", "bad"), "source": "s"},
    "transcripts": {
        "chosen": "\n\nHuman: q\n\nAssistant: good",
        "rejected": "\n\nHuman: q\n\nAssistant: bad",
    },
    "pairs": {"prompt": "q", "chosen": "good", "rejected": "bad", "subset": "s"},
    "lists": {"prompt": "q", "chosen": ["good"], "rejected": ["bad"], "domain": "s"},
}


@pytest.mark.parametrize("layout", UNRATED)
def test_pairs_without_ratings(layout: str) -> None:
    found = read(partial(read_preferences, rated_margin=True), UNRATED[layout])
    assert pair_of(found) == ("q", "good", "bad")
    (example,) = found.examples
    assert isinstance(example, PreferenceExample)
    assert example.margin == 0
    assert example.subset == ("" if layout == "transcripts" else "s")


def helpful(prompt: str, response: str, helpfulness: int) -> Fields:
    return {"prompt": prompt, "response": response, "helpfulness": helpfulness, "verbosity": 4}


def ratings(response: str, *aspects: str) -> Fields:
    annotations = {f"aspect {n}": {"Rating": rating} for n, rating in enumerate(aspects)}
    return {"response": response, "annotations": annotations, "overall_score": 10}


RATED: dict[str, list[Fields]] = {
    "helpsteer2": [helpful("q", "bad", 1), helpful("q", "good", 3)],
    "helpsteer3": [
        {
            "domain": "stem",
            "context": chat("q"),
            "response1": "good",
            "response2": "bad",
            "overall_preference": -2,
            "individual_preference": [{"score": -2}],
        }
    ],
    "ultrafeedback": [
        {
            "instruction": "q",
            "completions": [
                ratings("fair", "3", "3"),
                ratings("good", "5", "N/A"),
                ratings("unrated", "N/A", "N/A"),
                ratings("bad", "4", "2"),
            ],
        }
    ],
    "binarized": [
        {
            "prompt": "q",
            "chosen": chat("q", "good"),
            "rejected": chat("q", "bad"),
            "score_chosen": 8.0,
            "score_rejected": 6,
        }
    ],
}


@pytest.mark.parametrize("layout", RATED)
def test_pairs_with_ratings_may_have_a_margin(layout: str) -> None:
    for rated_margin, margin in ((False, 0.0), (True, 2.0)):
        found = read(partial(read_preferences, rated_margin=rated_margin), *RATED[layout])
        assert pair_of(found) == ("q", "good", "fair" if layout == "ultrafeedback" else "bad")
        (example,) = found.examples
        assert isinstance(example, PreferenceExample)
        assert example.margin == margin
        assert example.meta == {"gap": "2"}


@pytest.mark.parametrize(
    ("preference", "pair"),
    [(-1, ("q", "first", "second")), (3, ("q", "second", "first")), (0, DropReason.TIE)],
)
def test_helpsteer3_prefers_the_first_below_zero(preference: int, pair: object) -> None:
    row = {"context": chat("q"), "response1": "first", "response2": "second"}
    found = read(read_preferences, row | {"overall_preference": preference})
    assert (found.drops[0].reason if found.drops else pair_of(found)) == pair


@pytest.mark.parametrize("good", ["4", "4.0", 4, 4.0])
def test_ultrafeedback_rates_by_texts_or_numbers(good: object) -> None:
    row = {"instruction": "q", "completions": [ratings("bad", "1", "3"), ratings("good", "4")]}
    row["completions"][1]["annotations"]["aspect 0"]["Rating"] = good  # type: ignore[index]
    (example,) = read(partial(read_preferences, rated_margin=True), row).examples
    assert isinstance(example, PreferenceExample)
    assert (example.chosen, example.margin) == ("good", 2.0)


def test_the_content_of_a_message_may_be_a_list_of_parts() -> None:
    def parts(*texts: str) -> list[Fields]:
        return [{"type": "text", "text": text} for text in texts]

    row: Fields = {"chosen": chat("q", "good"), "rejected": chat("q", "bad")}
    for messages in row.values():
        messages[0]["content"] = parts("q")
    row["chosen"][1]["content"] = parts("go", "od")
    assert pair_of(read(read_preferences, row)) == ("q", "good", "bad")
    row["chosen"][1]["content"] = [{"type": "image_url", "image_url": {"url": "x"}}]
    with pytest.raises(
        DataError, match="row 1, field 'chosen', field 'content': expected a text, or parts of"
    ):
        read(read_preferences, row)


def test_ratings_that_do_not_tell_a_pair_are_dropped() -> None:
    steer = [helpful("p", "lone", 1), helpful("q", "a", 2), helpful("q", "b", 2), helpful("r", "end", 0)]
    found = read(read_preferences, *steer)
    assert reasons(found) == [
        ("row 1", DropReason.UNPAIRED),
        ("row 3", DropReason.TIE),
        ("row 4", DropReason.UNPAIRED),
    ]
    (binarized,) = RATED["binarized"]
    contrary = binarized | {"score_chosen": 1.0}
    assert reasons(read(read_preferences, contrary)) == [("row 1", DropReason.MISRATED)]
    few = {"instruction": "q", "completions": [ratings("a", "3"), ratings("b", "N/A")]}
    assert reasons(read(read_preferences, few)) == [("row 1", DropReason.UNPAIRED)]


def test_the_question_of_a_conversation_is_all_of_it() -> None:
    start = "\n\nHuman: Hi.\n\nAssistant: Yes?\n\nHuman: 1+1?\n\nAssistant:"
    found = read(read_preferences, {"chosen": f"{start} 2", "rejected": f"{start} 3"})
    assert pair_of(found) == ("User: Hi.\n\nAssistant: Yes?\n\nUser: 1+1?", "2", "3")


def test_sides_of_different_conversations_are_no_pair() -> None:
    found = read(
        read_preferences,
        {"chosen": chat("q", "good"), "rejected": chat("other", "bad")},
        {"chosen": chat("q", "a", "b"), "rejected": chat("q", "a", "c")},
        {"chosen": chat("q", "same"), "rejected": chat("q", "same")},
        {"chosen": chat("q", " "), "rejected": chat("q", "bad")},
        {"chosen": chat(" ", "a"), "rejected": chat(" ", "b")},
    )
    assert [reason for _, reason in reasons(found)] == [
        DropReason.PROMPTS_DIFFER,
        DropReason.PROMPTS_DIFFER,
        DropReason.SAME_TEXT,
        DropReason.EMPTY_COMPLETION,
        DropReason.NO_PROMPT,
    ]


def test_lists_are_paired_all_with_all() -> None:
    found = read(read_preferences, {"prompt": "q", "chosen": ["a", "b"], "rejected": ["c", "d", "e"]})
    assert len(found.examples) == 6


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"question": "q", "answer": "a"},
            "row 1: has the columns answer, question: expected those of a pref",
        ),
        ({"chosen": [], "rejected": [{"role": "user"}]}, "row 1, field 'rejected', field 'content'"),
        ({"chosen": "plain", "rejected": "text"}, "starts with 'Human:'"),
        (
            helpful("q", "a", 1) | {"helpfulness": "1"},
            "row 1, field 'helpfulness': expected a finite number, got str",
        ),
    ],
)
def test_a_row_of_no_known_pairs_is_refused(row: Fields, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        read(read_preferences, row, row)


# --- what is common to all


def test_a_row_that_is_not_what_it_should_be_is_left_out_where_that_is_asked_for() -> None:
    broken = DataError("row 3: not JSON at column 1: Expecting value")
    good, unmarked = UNRATED["transcripts"], {"chosen": "plain", "rejected": "text"}
    rows = [("row 1", {"x": 1}), ("row 2", good), ("row 3", broken), ("row 4", unmarked), ("row 5", good)]
    found = convert(rows, read_preferences, on_error="skip")
    assert (len(found.examples), found.rows) == (1, 5)
    assert [(drop.where, drop.reason) for drop in found.drops] == [
        ("row 1", DropReason.MALFORMED),
        ("row 3", DropReason.MALFORMED),
        ("row 4", DropReason.MALFORMED),
        ("row 5", DropReason.DUPLICATE),
    ]
    assert found.drops[1].detail == "not JSON at column 1: Expecting value"
    for start in (0, 2, 3):
        with pytest.raises(DataError, match=rf"row {start + 1}.*on_error=skip leaves such rows out"):
            convert(rows[start:], read_preferences)


def test_an_example_is_kept_once_and_contradictions_are_told_apart() -> None:
    row = {"question": "q", "m": {"is_correct": True, "solution": "s"}}
    other = copy.deepcopy(row)
    other["m"]["is_correct"] = False  # type: ignore[index]
    found = read(read_gsm8k_solutions, row, row, other)
    assert len(found.examples) == 1
    assert [reason for _, reason in reasons(found)] == [DropReason.DUPLICATE, DropReason.CONFLICT]
    turned = read(
        read_preferences,
        {"prompt": "q", "chosen": "a", "rejected": "b"},
        {"prompt": "q", "chosen": "b", "rejected": "a"},
    )
    assert reasons(turned) == [("row 2", DropReason.CONFLICT)]


def test_questions_of_evaluation_sets_are_left_out_however_they_are_spelt(tmp_path: Path) -> None:
    file = tmp_path / "eval.jsonl"
    file.write_text(json.dumps({"problem": "HOW  many?"}) + "\n" + json.dumps({"question": "Else?"}) + "\n")
    excluded = evaluation_questions([str(file)])
    assert excluded == {question_hash("how many?"), question_hash("else?")}
    row = {"question": "How many?", "m": {"is_correct": True, "solution": "s"}}
    found = convert([("row 1", row)], read_gsm8k_solutions, excluded)
    assert found.examples == ()
    assert found.drops == (Drop("row 1, field 'm'", DropReason.EVALUATION, "How many?"),)
    file.write_text('{"text": "no question"}\n')
    with pytest.raises(DataError, match=re.escape(f"{file}, line 1, field 'question': expected the text")):
        evaluation_questions([str(file)])


def test_a_limit_counts_rows_not_examples() -> None:
    rows = [("row 1", solved(step(rated("a", 1), rated("b", 0)))), ("row 2", {})]
    found = convert(rows, read_prm800k, limit=1)
    assert (found.rows, len(found.examples)) == (1, 2)


def test_every_labelled_set_has_a_reader() -> None:
    options = LabelledConfig(alternatives=True, rated_margin=False)
    assert all(list(reader_of(name, options)([])) == [] for name in SETS)


WHOLE: dict[str, list[Fields]] = {
    "gsm8k_solutions": [{"question": "q", "m": {"is_correct": True, "solution": "s"}}],
    "prm800k": [solved(step(rated("a", 1), rated("b", 0)), step(rated("c", -1), chosen=None, human="d"))],
    "math_shepherd": [shepherd("Step 1: a ки\nStep 2: b ки", "+-")],
    "processbench": [bench(1)],
    "messages": [UNRATED["messages"]],
    "lists": [UNRATED["lists"]],
    "transcripts": [UNRATED["transcripts"]],
    **RATED,
}
JUNK = st.sampled_from(
    [None, True, -7, 2.5, float("nan"), "", "\ud800", [], [None], {}, {"a": None}, ["x", 1]]
)


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into a nested row."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))][bool(not path) :]


@given(st.sampled_from(sorted(WHOLE)), st.integers(0, 999), JUNK, st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_damaged_row_is_read_dropped_or_refused_by_name(
    name: str, place: int, junk: object, removed: bool
) -> None:
    rows = copy.deepcopy(WHOLE[name])
    paths = [path for path in places(rows) if len(path) > 1]
    *way, last = paths[place % len(paths)]
    inner: Any = rows
    for key in way:
        inner = inner[key]
    if removed:
        del inner[last]
    else:
        inner[last] = junk
    dataset = name if name in SETS else "preference"
    reader = reader_of(dataset, LabelledConfig(alternatives=True, rated_margin=True))
    refused = ""
    try:
        read(reader, *rows)
    except DataError as error:
        refused = str(error)
    assert not refused or refused.startswith("row ")
    # Left out, it costs no other row anything.
    sound = [(f"sound {number}", row) for number, row in enumerate(copy.deepcopy(WHOLE[name]), start=1)]
    damaged = [(f"row {number}", row) for number, row in enumerate(rows, start=1)]
    with_it = convert([*sound, *damaged, *sound], reader, on_error="skip")
    assert with_it.examples[: len(convert(sound, reader).examples)] == convert(sound, reader).examples


# --- the real files, with the counts of their list of sources


@pytest.mark.parametrize(
    ("file", "dataset", "examples", "dropped", "labels"),
    [
        # 5276 solutions of which 8 are written by two models alike; 286 + 515 + 458 + 742 are right
        (
            "gsm8k/example_model_solutions.jsonl",
            "gsm8k_solutions",
            5268,
            {"duplicate": 8},
            {"right": 1994, "wrong": 3274},
        ),
        ("processbench/gsm8k.jsonl", "processbench", 400, {}, {"steps wrong": 207}),
        ("processbench/math.jsonl", "processbench", 1000, {}, {"steps wrong": 594}),
        ("prm_steps/math_shepherd_raw_samples.jsonl", "math_shepherd", 7, {}, {"steps right": 5}),
        (
            "prm_steps/prm800k_raw_samples.jsonl",
            "prm800k",
            26,
            {"gave_up": 1, "screening": 1, "duplicate": 2},
            {"steps wrong": 9, "steps neutral": 3},
        ),
        # 4898 right and 1008 wrong steps in 310 rows; 14 rows are there twice
        (
            "prm_steps/prm800k_openr_multi_step.jsonl",
            "prm800k",
            296,
            {"duplicate": 14},
            {"steps right": 4506, "steps wrong": 910},
        ),
        # 4441 judged steps, of which all but the first steps lack those before them
        (
            "prm_steps/prm800k_openr_single_step.jsonl.gz",
            "prm800k",
            212,
            {"no_context": 4221, "duplicate": 8},
            {"steps right": 184, "steps wrong": 28},
        ),
        (
            "preference/gsm8k_correct_vs_incorrect_pairs.jsonl.gz",
            "preference",
            2426,
            {"duplicate": 3},
            {"pairs": 2426},
        ),
        ("preference/open_instruct_preference_sample.jsonl", "preference", 100, {}, {"pairs": 100}),
    ],
)
def test_real_files(
    file: str, dataset: str, examples: int, dropped: dict[str, int], labels: dict[str, int]
) -> None:
    reader = reader_of(dataset, LabelledConfig(alternatives=True, rated_margin=False))
    found = convert(iter_rows(str(shared(f"data/{file}")), None, "train"), reader)
    assert len(found.examples) == examples
    assert count_drops(found.drops) == dropped
    counted = count_labels(found.examples)
    assert {name: counted[name] for name in labels} == labels


def test_processbench_never_lies_in_the_part_of_prm800k_that_is_kept() -> None:
    bench_file = shared("data/processbench/math.jsonl")
    rows = iter_rows(str(shared("data/prm_steps/prm800k_openr_multi_step.jsonl")), None, "train")
    found = convert(rows, read_prm800k, evaluation_questions([str(bench_file)]))
    kept = {example.question for example in found.examples}
    asked = {json.loads(line)["problem"] for line in bench_file.read_text(encoding="utf-8").splitlines()}
    assert (len(kept), kept & asked) == (67, set())
    assert count_drops(found.drops)[DropReason.EVALUATION] == 105
