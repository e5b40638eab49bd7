"""`python -m rewards.evaluate`: known figures, layouts found, models asked, faults told, intervals seeded."""

import io
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from shared_cases import shared, shared_rows
from tiny_reward_models import tiny_folder

from rewards.errors import ConfigError, DataError, RewardError
from rewards.evaluate import run
from rewards.evaluate_config import EVALUATION
from rewards.evaluation.completions import Completion
from rewards.evaluation.ranking import ranking
from rewards.evaluation.results import Result
from rewards.evaluation.settings import Measuring
from rewards.labelled import OutcomeExample, PreferenceExample, ProcessExample, write_labelled
from rewards.models.engine import reward_model
from rewards.models.outcome import OutcomeScorer
from rewards.models.settings import ModelSettings
from rewards.models.truncation import Request
from rewards.records import score_to_record
from rewards.types import Problem, Reason, Sample, Score, StepScore, Verdict

Row = dict[str, Any]


def write(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def evaluate(*overrides: str) -> tuple[Result, str]:
    """What a run finds and what it says."""
    console = Console(file=io.StringIO(), width=200)
    result = run(EVALUATION.load(["estimate.resamples=50", "draws=20", *overrides]), console)
    return result, console.file.getvalue()  # type: ignore[attr-defined]


def figures(result: Result) -> dict[str, float]:
    return {measure.name: measure.value for measure in result.findings.measures}


def cells(result: Result, title: str) -> dict[str, tuple[str, ...]]:
    (table,) = [table for table in result.findings.tables if table.title == title]
    return {row[0]: row[1:] for row in table.rows}


QWEN = "data/rm_scores/qwen_math_rm72b_bo8_math_cot_100.jsonl"
SHEPHERD = "data/rm_scores/rewardmath_Math_Shepherd_reward.jsonl.gz"


def test_the_program_prints_the_known_figures_of_the_qwen_reward_model(
    program_env: Mapping[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "rewards.evaluate", "protocol=best_of_n", f"input={shared(QWEN)}"]
    done = subprocess.run(
        command, cwd=tmp_path, env=dict(program_env), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "correct from 'score'" in done.stdout
    assert "score from 'pred_score'" in done.stdout
    assert list(tmp_path.iterdir()) == []
    for pick, value in {"pass@1": 91, "best_of_n": 94, "pass@n": 96, "worst_of_n": 86}.items():
        assert f"│ {pick} " in done.stdout
        assert f"{value}.00 %" in next(line for line in done.stdout.splitlines() if f"│ {pick} " in line)
    (majority,) = [
        line.split() for line in done.stdout.splitlines() if line.count("%") == 3 and "majority" in line
    ]
    assert [majority[place] for place in (3, 6, 9)] == ["92.50", "93.00", "91.00"]  # shared, first, lost
    headline = next(line for line in done.stdout.splitlines() if "│ majority " in line)
    assert "92.50 %" in headline
    assert "93.00 % where the first listed counts" in " ".join(done.stdout.split())


def test_the_known_figures_of_ranking_and_calibration() -> None:
    ranked = figures(evaluate("protocol=auc", f"input={shared(QWEN)}")[0])
    assert ranked == {"auc": pytest.approx(0.9682, abs=5e-5), "auc_within": pytest.approx(0.8906, abs=5e-5)}
    found = figures(evaluate("protocol=calibration", f"input={shared(QWEN)}")[0])
    assert found["ece"] == pytest.approx(0.0385, abs=5e-5)
    assert found["brier"] == pytest.approx(0.038, abs=5e-4)


def test_the_known_figures_of_math_shepherd_by_every_aggregation() -> None:
    result, said = evaluate("protocol=best_of_n", f"input={shared(SHEPHERD)}")
    assert "the first of each line is right" in said
    rules = cells(result, "by the rule of ties")
    for name, top in {"min": "15.32 %", "product": "17.18 %", "mean": "15.11 %", "last": "18.22 %"}.items():
        assert rules[f"best_of_n ({name})"][2] == top  # a tie is lost, as in top-1
    last, _ = evaluate("protocol=best_of_n", f"input={shared(SHEPHERD)}", "aggregation=last", "limit=100")
    assert "best_of_n" not in figures(last)
    assert "best_of_n (last)" in figures(last)
    assert last.findings.questions == 100


FLAT: list[Row] = [
    {"prompt": "half?", "completion": r"\boxed{1/2}", "gold": "0.5", "reward": 0.2},
    {"prompt": "half?", "completion": r"\boxed{0.5}", "gold": "0.5", "reward": 0.3},
    {"prompt": "half?", "completion": r"\boxed{3}", "gold": "0.5", "reward": 0.4},
    {"prompt": "two?", "completion": r"\boxed{2}", "gold": "2", "reward": 0.9},
    {"prompt": "two?", "completion": r"\boxed{4}", "gold": "2", "reward": None},
]
"""Right, right, wrong; right, wrong. By strings the first question's answers would all differ."""


def test_lines_of_completions_are_verified_grouped_and_vote_by_equivalence(tmp_path: Path) -> None:
    path = write(tmp_path / "flat.jsonl", FLAT)
    result, said = evaluate("protocol=best_of_n", f"input={path}")
    assert "a completion a line, right and wrong from our verifier" in said
    assert "scores are taken for probabilities" in said
    assert "questions have 2 to 3 completions" in said
    # question one: 2 of 3 right, votes 1/2 = 0.5 against 3; by probabilities 0.5 against 0.4
    assert figures(result) == {
        "pass@1": pytest.approx((2 / 3 + 1 / 2) / 2),
        "majority": pytest.approx((1 + 1 / 2) / 2),
        "weighted": 1.0,
        "best_of_n": 0.5,
        "worst_of_n": 1.0,
        "pass@n": 1.0,
    }
    logits = figures(evaluate("protocol=best_of_n", f"input={path}", "scale=logit", "ties=lose")[0])
    assert logits["majority"] == 0.5
    ranked, said = evaluate("protocol=auc", f"input={path}")
    assert "left out: 1 of 5 completions without a score" in said
    assert figures(ranked) == {"auc": pytest.approx(1 / 3), "auc_within": 0.0}


def test_lines_of_questions_and_lines_of_completions_give_the_same(tmp_path: Path) -> None:
    rows = [
        {
            "id": n,
            "scores": [n / 10, 0.5, [0.2]],
            "correct": [True, n % 2, False],
            "answers": ["a", None, "b"],
        }
        for n in range(6)
    ]
    flat = [
        {"question_id": row["id"], "score": score, "is_correct": right, "pred": answer or ""}
        for row in rows
        for score, right, answer in zip(row["scores"], row["correct"], row["answers"], strict=True)
    ]
    together, one = write(tmp_path / "together.jsonl", rows), write(tmp_path / "one.jsonl", flat)
    for protocol in ("best_of_n", "auc", "calibration"):
        found = [figures(evaluate(f"protocol={protocol}", f"input={path}")[0]) for path in (together, one)]
        assert found[0] == found[1], protocol


def test_texts_that_are_not_the_completions_are_left_alone(tmp_path: Path) -> None:
    rows = [{**LISTS, "solution": "worked by hand", "answer": "3", "pred": "3"}]
    result, said = evaluate("protocol=auc", f"input={write(tmp_path / 'in.jsonl', rows)}")
    assert figures(result) == {"auc": 1.0, "auc_within": 1.0}
    assert "solution" not in said
    failed = [*FLAT, {**FLAT[0], "completion": None, "reward": None}]
    marked = [{**row, "correct": n % 2 == 0} for n, row in enumerate(failed)]
    assert "auc" in figures(evaluate("protocol=auc", f"input={write(tmp_path / 'null.jsonl', marked)}")[0])
    with pytest.raises(DataError, match=r"line 6, field 'completion': .* got null"):
        evaluate("protocol=auc", f"input={write(tmp_path / 'null.jsonl', failed)}")


def test_the_labelled_files_of_data_preparation_are_read(tmp_path: Path) -> None:
    outcomes = [
        OutcomeExample("6*7?", text, label) for text, label in (("42", 0.0), ("<think>so</think>42", 1.0))
    ]
    pair = PreferenceExample("6*7?", "<think>so</think>42", "42")
    process = [
        ProcessExample("p", ("3 + 4 = 8.", "So 8."), (0.0, None)),
        ProcessExample("q", ("3 + 4 = 7.", "So 7."), (1.0, "neutral")),
    ]
    path = tmp_path / "labelled.jsonl"
    write_labelled(path, outcomes)
    assert figures(evaluate("protocol=auc", "reward=format", f"input={path}")[0])["auc"] == 1.0
    write_labelled(path, [pair])
    assert figures(evaluate("protocol=pairs", "reward=format", f"input={path}")[0])["accuracy"] == 1.0
    write_labelled(path, process)
    found = figures(evaluate("protocol=processbench", "reward=arithmetic_steps", f"input={path}")[0])
    assert found["f1 (labelled)"] == 1.0


def test_a_score_file_stands_in_for_scores_of_the_input(tmp_path: Path) -> None:
    rows = [{"id": f"r{n}", "prompt": "q", "completion": "c", "correct": n == 1} for n in range(3)]
    path = write(tmp_path / "in.jsonl", rows)
    scores = [
        Score(Verdict.SCORED, 0.1, Reason.STEPS, steps=(StepScore(0, 1, 0.9),)),
        Score(Verdict.SCORED, 0.2, Reason.STEPS, steps=(StepScore(0, 1, 0.8),)),
        Score.abstained(Reason.NO_GOLD),
    ]
    lines = [score_to_record(f"r{n}", score) for n, score in enumerate(scores)]
    stored = f"scores={write(tmp_path / 'scores.jsonl', lines)}"
    result, said = evaluate("protocol=auc", f"input={path}", stored)
    assert figures(result)["auc"] == 1.0
    assert "left out: 1 of 3 completions without a score" in said
    assert result.judge == str(tmp_path / "scores.jsonl")
    assert figures(evaluate("protocol=auc", f"input={path}", stored, "aggregation=min")[0])["auc"] == 0.0
    write(tmp_path / "scores.jsonl", [lines[0], lines[2], lines[1]])
    with pytest.raises(DataError, match=r"scores.jsonl, line 2: the score of 'r2', but .* has 'r1' there"):
        evaluate("protocol=auc", f"input={path}", stored)
    write(tmp_path / "scores.jsonl", lines[:2])
    with pytest.raises(DataError, match=r"scores.jsonl: ends before line 3 of"):
        evaluate("protocol=auc", f"input={path}", stored)
    with pytest.raises(ConfigError, match="protocol=steps reads no score file"):
        evaluate("protocol=steps", f"input={path}", stored)
    with pytest.raises(ConfigError, match=r"scored anew(.|\n)*expected one input file"):
        evaluate("protocol=auc", "input=[a,b]", stored, "reward=format")


def test_named_fields_win_and_votes_need_answers(tmp_path: Path) -> None:
    rows = [{"q": n // 2, "mine": n % 2, "score": 0.5, "ok": n % 2 == 1} for n in range(8)]
    path = write(tmp_path / "named.jsonl", rows)
    named = ("fields.question=q", "fields.score=mine", "fields.correct=ok")
    result, said = evaluate("protocol=best_of_n", f"input={path}", *named)
    assert "votes are not counted: no field tells answers" in said
    assert figures(result) == {"pass@1": 0.5, "best_of_n": 1.0, "worst_of_n": 0.0, "pass@n": 1.0}


def test_shares_that_are_whole_have_intervals_and_seeds_decide(tmp_path: Path) -> None:
    rows = [{"question_id": n // 4, "score": (n * 7) % 10, "correct": n % 3 == 0} for n in range(80)]
    path = write(tmp_path / "seeds.jsonl", rows)
    first, again = (evaluate("protocol=auc", f"input={path}")[0] for _ in range(2))
    assert first == again
    other, _ = evaluate("protocol=auc", f"input={path}", "estimate.seed=1")
    assert figures(other) == figures(first)
    assert other != first
    for measure in first.findings.measures:
        assert measure.bounds is not None
        assert measure.bounds[0] < measure.value < measure.bounds[1]
    pairs = write(tmp_path / "pairs.jsonl", [{"chosen_score": 1.0, "rejected_score": 0.0}] * 20)
    accuracy = evaluate("protocol=pairs", f"input={pairs}")[0].findings.measures[0]
    assert accuracy.value == 1.0
    assert accuracy.bounds is not None
    assert accuracy.bounds[0] == pytest.approx(0.839, abs=1e-3)  # Wilson, 20 of 20


PAIRS: list[Row] = [
    {"prompt": "a", "chosen_score": 2.0, "rejected_score": 1.0, "subset": "chat"},
    {"prompt": "b", "chosen_score": 2.0, "rejected_score": 2.0, "subset": "chat"},
    {"prompt": "c", "chosen_score": 2.0, "rejected_score": [1.0, 3.0], "subset": "hard"},
    {"prompt": "c", "chosen_score": 2.0, "rejected_score": [1.0, 0.0], "subset": "hard"},
]


def test_pairs_are_won_strictly_and_by_subset(tmp_path: Path) -> None:
    result, _ = evaluate("protocol=pairs", f"input={write(tmp_path / 'pairs.jsonl', PAIRS)}")
    assert figures(result) == {"accuracy": 0.5, "ties": 0.25, "subset_mean": 0.5}
    assert result.findings.questions == 3
    rows = cells(result, "by subset")
    assert {name: (row[0], row[1], row[3]) for name, row in rows.items()} == {
        "chat": ("2", "50.00 %", "1"),
        "hard": ("2", "50.00 %", "0"),
    }
    halves = [write(tmp_path / f"{name}.jsonl", [row]) for name, row in zip("xy", PAIRS[:2], strict=True)]
    for half in halves:
        half.write_text(half.read_text().replace(', "subset": "chat"', ""))
    both, _ = evaluate("protocol=pairs", f"input=[{halves[0]},{halves[1]}]")
    assert set(cells(both, "by subset")) == {"x", "y"}


def test_names_from_files_are_text_on_the_screen_and_in_the_card(tmp_path: Path) -> None:
    hostile = "\x1b[31m<script>[bold]\ud800"
    path = write(tmp_path / "pairs.jsonl", [{**row, "subset": hostile} for row in PAIRS])
    result, said = evaluate("protocol=pairs", f"input={path}", f"output={tmp_path}/card")
    assert r"\x1b[31m<script>[bold]\ud800" in said
    assert hostile in cells(result, "by subset")
    page = (tmp_path / "card" / "card.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert r"\x1b[31m&lt;script&gt;[bold]\ud800" in page


def test_any_reward_judges_pairs_of_texts_and_of_messages(tmp_path: Path) -> None:
    thought, bare = "<think>so</think>42", "42"
    rows = [
        {"chosen": [{"role": "user", "content": "6*7?"}, {"role": "assistant", "content": thought}],
         "rejected": [{"role": "user", "content": "6*7?"}, {"role": "assistant", "content": bare}]},
    ]  # fmt: skip
    messages = write(tmp_path / "messages.jsonl", rows)
    texts = write(tmp_path / "texts.jsonl", [{"prompt": "6*7?", "chosen": bare, "rejected": [bare, thought]}])
    found = [
        figures(evaluate("protocol=pairs", "reward=format", f"input={path}")[0]) for path in (messages, texts)
    ]
    assert found == [{"accuracy": 1.0, "ties": 0.0}, {"accuracy": 0.0, "ties": 0.0}]


SOLUTIONS: list[Row] = [
    {"problem": "1", "values": [0.9, 0.3, 0.9], "label": 1},
    {"problem": "2", "values": [0.9, 0.8], "label": -1},
    {"problem": "3", "values": [0.4, 0.8], "label": -1},
    {"problem": "4", "values": [0.2, 0.8], "labels": [1, 0]},
]


def test_processbench_by_hand_and_a_threshold_kept(tmp_path: Path) -> None:
    first = write(tmp_path / "first.jsonl", SOLUTIONS[:3])
    result, _ = evaluate("protocol=processbench", f"input={first}")
    assert figures(result) == {
        "error (first)": 1.0,
        "correct (first)": 0.5,
        "f1 (first)": pytest.approx(2 / 3),
        "f1 (average)": pytest.approx(2 / 3),
    }
    other = write(
        tmp_path / "other.jsonl",
        [{**row, "values": [v - 0.2 for v in row["values"]]} for row in SOLUTIONS[:3]],
    )
    both = f"input=[{first},{other}]"
    kept, said = evaluate("protocol=processbench", both, "threshold_set=first")
    assert "threshold 0.4: the best on first" in said
    assert figures(kept)["f1 (first)"] == 1.0
    assert figures(kept)["f1 (others)"] == figures(kept)["f1 (other)"] == pytest.approx(2 / 3)
    with pytest.raises(
        ConfigError, match="threshold_set=frist: the sets are first, other; did you mean 'first'"
    ):
        evaluate("protocol=processbench", both, "threshold_set=frist")
    with pytest.raises(DataError, match="1 wrong and 0 right"):
        evaluate("protocol=processbench", f"input={write(tmp_path / 'wrong.jsonl', SOLUTIONS[:1])}")


def test_steps_by_hand(tmp_path: Path) -> None:
    rows = [{"question": "1", "step_scores": [0.9, 0.2, 0.1], "labels": [1, 0, None]},
            {"question": "2", "step_scores": [0.6, 0.7], "labels": ["neutral", 0.2]}]  # fmt: skip
    result, said = evaluate("protocol=steps", f"input={write(tmp_path / 'steps.jsonl', rows)}")
    assert "4 labelled steps of 2 solutions, 2 wrong" in said
    # as in test_protocols: right 0.9 and 0.6, wrong 0.2 and 0.7
    assert figures(result) == {
        "auc": 0.75,
        "error_ap": pytest.approx(0.5 * 1 + 0.5 * 2 / 3),
        "first_error_recall": 0.5,
    }


def test_the_sizes_of_processbench_are_checked(tmp_path: Path) -> None:
    rows = shared_rows("data/processbench/gsm8k.jsonl")
    oracle = [
        {**row, "values": [float(step != row["label"]) for step in range(len(row["steps"]))]} for row in rows
    ]
    path = write(tmp_path / "gsm8k.jsonl", oracle)
    result, said = evaluate("protocol=processbench", f"input={path}")
    assert figures(result)["f1 (gsm8k)"] == 1.0
    assert cells(result, "sets") == {"gsm8k": ("400", "207")}
    assert "sizes checked: gsm8k" in said
    silent = write(tmp_path / "gsm8k.jsonl", [{**row, "values": [1.0] * len(row["steps"])} for row in rows])
    assert figures(evaluate("protocol=processbench", f"input={silent}")[0])["f1 (gsm8k)"] == 0.0
    with pytest.raises(DataError, match="gsm8k: 399 solutions, but ProcessBench's set of this name has 400"):
        evaluate("protocol=processbench", f"input={path}", "limit=399")


def test_a_rule_judges_the_steps_that_a_benchmark_gives(tmp_path: Path) -> None:
    rows = [
        {"problem": "3+4?", "steps": ["Add: 3 + 4 = 8.", "Then 8 + 1 = 9.\n\nSo it is 9."], "label": 0},
        {"problem": "3+4?", "steps": ["Add: 3 + 4 = 7.", "So it is 7 + 0 = 7."], "label": -1},
    ]
    path = write(tmp_path / "sums.jsonl", rows)
    result, _ = evaluate("protocol=processbench", "reward=arithmetic_steps", f"input={path}")
    assert figures(result)["f1 (sums)"] == 1.0
    with pytest.raises(DataError, match=r"none of the 2 solutions .*: expected a process reward model"):
        evaluate("protocol=processbench", "reward=format", f"input={path}")
    write(path, [{**rows[0], "steps": None}, *rows])
    with pytest.raises(DataError, match="line 1, field 'steps': expected a list of strings, got null"):
        evaluate("protocol=processbench", "reward=arithmetic_steps", f"input={path}")


@pytest.fixture(scope="module")
def orm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder("skywork-reward", tmp_path_factory.mktemp("orm"))


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder("qwen2.5-math-prm", tmp_path_factory.mktemp("prm"))


def test_an_outcome_model_is_measured_as_its_stored_scores_are(orm: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", FLAT[:4])
    settings = ModelSettings(path=str(orm), convention="skywork-reward", device="cpu")
    samples = [Sample(Problem("", row["prompt"]), row["completion"]) for row in FLAT[:4]]
    scores = [score.value for score in OutcomeScorer(model=settings).score(samples)]
    stored = write(
        tmp_path / "stored.jsonl", [{**row, "reward": s} for row, s in zip(FLAT, scores, strict=False)]
    )
    model = (f"model.path={orm}", "model.convention=skywork-reward", "model.device=cpu")
    for protocol in ("best_of_n", "auc", "calibration"):
        asked, said = evaluate(f"protocol={protocol}", f"input={path}", *model)
        read, _ = evaluate(f"protocol={protocol}", f"input={stored}")
        assert figures(asked) == {
            name: pytest.approx(value, abs=1e-5) for name, value in figures(read).items()
        }
        assert f"{orm}, read by skywork-reward" == asked.judge
        assert "report card: " in said
    card = orm / "evaluation" / "card.md"
    assert [line for line in card.read_text().splitlines() if line.startswith("## ")] == [
        r"## auc: in.jsonl, 2 questions",
        r"## best\_of\_n: in.jsonl, 2 questions",
        r"## calibration: in.jsonl, 2 questions",
    ]
    inside = [f"reward.components.orm.scorer.{override}" for override in model]
    for overrides in (model, inside):  # the second is told for this component alone
        output = f"output={tmp_path / 'card'}"
        same, _ = evaluate("protocol=auc", f"input={path}", "reward=orm", output, *overrides)
        assert figures(same) == pytest.approx(figures(evaluate("protocol=auc", f"input={stored}")[0]))
    mixed = EVALUATION.load(["protocol=auc", "input=x", "reward=format+orm", *model])
    assert mixed.reward.components["orm"].scorer["model"] == mixed.model


def test_a_process_model_judges_the_steps_that_a_benchmark_gives(prm: Path, tmp_path: Path) -> None:
    steps = [["One box holds 3+4=7.\n\nSo 7.", "Five hold 5*7=35."], ["It is 12."]]
    rows = [{"problem": "How many?", "steps": own, "label": 0 if n else -1} for n, own in enumerate(steps)]
    model = reward_model(ModelSettings(path=str(prm), convention="qwen2.5-math-prm", device="cpu"))
    judged = model.judge([Request("How many?", tuple(f"{step}\n\n" for step in own)) for own in steps])
    stored = [{**row, "values": list(found.values)} for row, found in zip(rows, judged, strict=True)]
    asked = evaluate(
        "protocol=steps",
        f"input={write(tmp_path / 'in.jsonl', rows)}",
        f"model.path={prm}",
        "model.convention=qwen2.5-math-prm",
        "model.device=cpu",
        f"output={tmp_path}/card",
    )[0]
    read = evaluate("protocol=steps", f"input={write(tmp_path / 'stored.jsonl', stored)}")[0]
    assert [len(found.values) for found in judged] == [2, 1]  # a blank line inside a step cuts nothing
    assert figures(asked) == pytest.approx(figures(read))


def test_the_step_values_of_a_process_model_are_aggregated_in_every_way(prm: Path, tmp_path: Path) -> None:
    rows = [
        {"prompt": "q", "completion": f"{n} + 1 = {n + 1}.\n\nSo {n + 1}.", "correct": n == 1}
        for n in range(3)
    ]
    found = figures(
        evaluate(
            "protocol=auc",
            f"input={write(tmp_path / 'in.jsonl', rows)}",
            f"model.path={prm}",
            "model.convention=qwen2.5-math-prm",
            f"output={tmp_path}/card",
        )[0]
    )
    assert {"auc (min)", "auc (product)", "auc (last)", "auc_within (mean)"} <= found.keys()


GOOD = {"question_id": 1, "score": 0.5, "correct": True}
LISTS = {"scores": [0.5, 0.1], "correct": [True, False]}
STEPS = {"problem": "p", "values": [0.5, 0.4], "label": 1}
PAIR = {"chosen_score": 1.0, "rejected_score": 0.0}
FAULTS: list[tuple[str, Row, Row, str]] = [
    ("auc", GOOD, {**GOOD, "score": "0.5"}, "line 2, field 'score': expected a finite number, .*, got '0.5'"),
    ("auc", GOOD, {**GOOD, "score": True}, "line 2, field 'score': .* got True"),
    ("auc", GOOD, {**GOOD, "correct": None}, "line 2, field 'correct': expected true or false, .* got null"),
    ("auc", GOOD, {"question_id": 1, "score": 0.5}, "line 2, field 'correct': .* got null or nothing"),
    ("auc", GOOD, {**GOOD, "correct": 2}, "line 2, field 'correct': .* got 2"),
    ("auc", {**GOOD, "score": 0.0, "correct": "false"}, GOOD, "line 1, field 'correct': .* got 'false'"),
    ("auc", GOOD, {**GOOD, "correct": [True]}, r"line 2, field 'correct': .* got \[True\]"),
    (
        "auc",
        GOOD,
        {**GOOD, "question_id": 1.5},
        "line 2, field 'question_id': expected a string or an integer",
    ),
    ("auc", LISTS, {**LISTS, "scores": [0.5]}, "line 2: .*1 in 'scores'.*expected as many"),
    ("auc", LISTS, {**LISTS, "scores": 0.5}, "line 2, field 'scores': .* got 0.5"),
    ("steps", STEPS, {**STEPS, "label": 2}, "line 2, field 'label': expected a label for each step"),
    ("steps", STEPS, {**STEPS, "label": [1, 0, 1]}, "line 2, field 'label': .*"),
    ("steps", STEPS, {**STEPS, "label": [1, -1]}, r"line 2, field 'label': .* got \[1, -1\]"),
    ("steps", STEPS, {**STEPS, "label": None}, r"line 2, field 'label': .* got null"),
    ("steps", STEPS, {**STEPS, "values": None}, "line 2, field 'values': expected a list of finite numbers"),
    ("steps", {**STEPS, "steps": ["a", "b"]}, {**STEPS, "steps": ["a"]}, "line 2: 1 steps and 2 values"),
    ("pairs", PAIR, {"chosen_score": 1.0}, "line 2, field 'rejected_score': .* got null or nothing"),
    ("pairs", PAIR, {**PAIR, "rejected_score": "low"}, "line 2, field 'rejected_score': .* got 'low'"),
]


@pytest.mark.parametrize(("protocol", "first", "second", "message"), FAULTS)
def test_a_line_that_does_not_fit_is_named(
    protocol: str, first: Row, second: Row, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "in.jsonl", [first, second])
    with pytest.raises(DataError, match=f"^{path}, {message}"):
        evaluate(f"protocol={protocol}", f"input={path}")


def test_numbers_that_are_not_finite_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", [GOOD, {**GOOD, "score": math.nan}])
    with pytest.raises(DataError, match=r"line 2, field 'score': .* got nan"):
        evaluate("protocol=auc", f"input={path}")


MISSING = {
    (
        "auc",
    ): "no field holds the score .*; give fields.score=NAME, or what scores: model.path=FOLDER or reward=",
    ("auc", "reward=format"): "no field holds the completion",
    ("pairs",): "no field holds the chosen_score .*\n.*no field holds the rejected_score",
    ("steps",): "no field holds the labels",
    ("auc", "fields.score=valeu"): "fields.score=valeu: .* has id, valu; did you mean 'valu'",
    ("auc", "fields.score=valu"): "no field holds the correct .*, or right=first or right=verify",
    ("auc", "fields.score=valu", "right=verify"): "no field holds the completion .*\n.*the gold",
}


@pytest.mark.parametrize("overrides", MISSING)
def test_a_missing_field_is_told_with_what_is_there(overrides: tuple[str, ...], tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", [{"id": 1, "valu": 0.5}])
    protocol, *others = overrides
    with pytest.raises(ConfigError, match=MISSING[overrides]):
        evaluate(f"protocol={protocol}", f"input={path}", *others)


REFUSED = {
    "protocol=best_of_m": "expected one of best_of_n, .*did you mean 'best_of_n'",
    "ties=luck": "expected one of share, first, lose",
    "estimate.level=1": "estimate.level=1: expected below 1",
    "input=[]": r"input=\[\]: expected a file",
    "input=7": "input=7: expected a file",
    "input=[a/x.jsonl,b/x.jsonl.gz]": "files of one name",
    "aggregation=max": "expected one of min, product",
    "threshold_set=gsm8k": "only protocol=processbench has sets",
    "fields.scroe=x": "fields.scroe",
    "model.path=": "model.path: expected a local folder",
    "reward=[format,orm]": "reward.components.orm.scorer.model.path: a value is needed",
}


@pytest.mark.parametrize("override", REFUSED)
def test_settings_are_refused_before_anything_is_read(override: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED[override]):
        EVALUATION.load(["protocol=auc", "input=nowhere.jsonl", override])


def test_a_model_and_a_reward_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="the reward given too needs no model: leave out one"):
        EVALUATION.load(["protocol=auc", "input=x.jsonl", "model.path=m", "reward=format"])


def test_a_field_of_the_right_name_that_does_not_fit_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", [{**GOOD, "correct": "false"}])
    with pytest.raises(ConfigError, match=r"no field holds the correct \(true .*, correct: 'false'; give"):
        evaluate("protocol=auc", f"input={path}")


def test_a_part_of_a_mix_that_abstains_is_told(tmp_path: Path) -> None:
    row = {"prompt": "6*7?", "completion": "<think>so</think>42", "correct": True}
    rows = [row, {**row, "completion": "42", "correct": False}, {**row, "prompt": "1+1?", "gold": "2"}]
    result, said = evaluate(
        "protocol=auc", "reward=verifiable+format", f"input={write(tmp_path / 'in.jsonl', rows)}"
    )
    told = "part_abstained: 2 of 3 scores are without 'accuracy'"
    assert told in said
    assert any(told in line for line in result.findings.said)
    pair = {"prompt": "6*7?", "chosen": "<think>so</think>42", "rejected": "42"}
    _, said = evaluate(
        "protocol=pairs", "reward=verifiable+format", f"input={write(tmp_path / 'pairs.jsonl', [pair])}"
    )
    assert "part_abstained: 2 of 2 scores" in said


def test_what_leaves_nothing_to_measure_is_told(tmp_path: Path) -> None:
    alone = write(tmp_path / "alone.jsonl", [GOOD, {**GOOD, "question_id": 2}])
    with pytest.raises(DataError, match="every question has one completion"):
        evaluate("protocol=best_of_n", f"input={alone}")
    unscored = write(tmp_path / "unscored.jsonl", [{**GOOD, "score": None, "x": 1.0}])
    with pytest.raises(DataError, match="none of the 1 completions has a score"):
        evaluate("protocol=auc", f"input={unscored}", "fields.score=score")
    raw = write(tmp_path / "raw.jsonl", [{**GOOD, "score": 3.5}])
    with pytest.raises(DataError, match="a probability outside"):
        evaluate("protocol=calibration", f"input={raw}", "scale=probability")
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(DataError, match="holds no lines"):
        evaluate("protocol=auc", f"input={empty}")
    with pytest.raises(RewardError, match="cannot be read"):
        evaluate("protocol=auc", "input=nowhere.jsonl")


def test_a_model_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", FLAT)
    (tmp_path / "hollow").mkdir()
    with pytest.raises(ConfigError, match=r"hollow: no config.json in it"):
        evaluate("protocol=auc", f"input={path}", f"model.path={tmp_path}/hollow")


def test_a_product_is_not_taken_of_logits(tmp_path: Path) -> None:
    rows = [{"question_id": 1, "score": [-1.0, n], "correct": n == 1} for n in range(3)]
    path = write(tmp_path / "in.jsonl", rows)
    result, said = evaluate("protocol=auc", f"input={path}")
    assert "some step values are negative: no product" in said
    assert {"auc (min)", "auc (last)"} <= figures(result).keys()
    assert not {"auc (product)"} & figures(result).keys()
    with pytest.raises(DataError, match="aggregation=product: a step value is negative"):
        evaluate("protocol=auc", f"input={path}", "aggregation=product")


def test_the_intervals_of_an_auc_cover_it_as_often_as_they_say() -> None:
    # Scores of right ones are two thirds of a deviation higher, and every question has a level of its own:
    # within questions the AUC is that of the shift alone.
    truth, covered, trials = NormalDist().cdf(2 / 3 / math.sqrt(2)), 0, 60
    settings = Measuring(resamples=120)
    for trial in range(trials):
        noise = np.random.default_rng(trial)
        levels, right = noise.normal(0, 2, 50), noise.random((50, 6)) < 0.5
        scores = levels[:, None] + 2 / 3 * right + noise.normal(0, 1, (50, 6))
        rows = [
            Completion(str(q), (float(scores[q, i]),), bool(right[q, i]), None, None)
            for q in range(50)
            for i in range(6)
        ]
        (within,) = [one for one in ranking(rows, settings).measures if one.name == "auc_within"]
        assert within.bounds is not None
        covered += within.bounds[0] <= truth <= within.bounds[1]
    assert 0.85 <= covered / trials <= 1.0
