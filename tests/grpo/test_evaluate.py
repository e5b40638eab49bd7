"""`python -m grpo.evaluate`: figures worked by hand, and a trained model measured as its run measured it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fakes import TOKENIZER, llama
from training_runs import TINY, Trainer, metrics_of

from grpo.evaluate_config import EVALUATE
from grpo.measures import Answers, Intervals, Judged, measures, sample_counts
from grpo.measuring import evaluate
from rewards.errors import ConfigError, DataError
from rewards.intervals import Interval
from rewards.io import write_problems
from rewards.types import Problem


def judged(
    right: Sequence[bool | None], answers: Sequence[int | None], scores: Sequence[float | None]
) -> tuple[Judged, ...]:
    return tuple(
        Judged(r, a, s, formatted=True, length=10 + i, truncated=i == 0)
        for i, (r, a, s) in enumerate(zip(right, answers, scores, strict=True))
    )


FIRST = Answers(
    Judged(True, 0, 1.0, True, 9, False),
    judged([True, False, False, False], [0, 1, 1, 2], [0.9, 0.1, 0.2, 0.3]),
)
SECOND = Answers(
    Judged(False, 1, 0.0, False, 9, False),
    judged([True, True, False, False], [0, 0, 1, None], [0.1, 0.5, 0.5, 0.2]),
)


def means(problems: Sequence[Answers], *ks: int, chosen: bool = True) -> dict[str, float]:
    found = measures(problems, ks, Intervals(resamples=50), chosen=chosen)
    return {name: interval.mean for name, interval in found.items()}


def test_figures_worked_by_hand() -> None:
    found = means([FIRST, SECOND], 1, 2, 4)
    # All six pairs; where two answers tie, each wins half. FIRST: three pairs of the right one and another.
    # SECOND: {0, 0} right, {0, 1} twice half, {0, none} twice right, {1, none} wrong: 4 in all of 6.
    assert found.pop("maj@2") == pytest.approx((1.5 / 6 + 4 / 6) / 2, abs=0.08)  # by 100 drawn pairs
    assert found == pytest.approx(
        {
            "greedy": 0.5,
            "pass@1": (1 / 4 + 2 / 4) / 2,
            "pass@2": (3 / 6 + 5 / 6) / 2,  # pairs with a right one, of six
            "pass@4": 1.0,
            "maj@4": (0 + 1) / 2,
            # FIRST: the best is right and in half of the pairs. SECOND: 1 + 0 + 0 + 1/2 + 1 + 0 of six
            "best@2": (1 / 2 + 2.5 / 6) / 2,
            "best@4": (1 + 1 / 2) / 2,  # SECOND: right and wrong tie at 0.5
            "format": 1.0,
            "length": 11.5,
            "clipped_ratio": 0.25,
            "unscored": 0.0,
        }
    )


def test_a_sample_without_a_verdict_is_left_out_of_its_problem() -> None:
    odd = Answers(FIRST.greedy, judged([True, None, False, False], [0, 1, 1, 1], [0.1, 0.9, 0.2, 0.2]))
    found = measures([odd, SECOND], [1, 4], Intervals(resamples=50), chosen=True)
    assert found["pass@1"].mean == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert (found["pass@1"].problems, found["pass@4"].problems, found["best@4"].problems) == (2, 1, 1)
    assert found["unscored"].mean == pytest.approx(1 / 8)


def test_a_problem_that_cannot_be_judged_is_in_no_figure_of_right_and_wrong() -> None:
    blank = replace(FIRST.greedy, right=None, formatted=None)
    found = means([Answers(blank, (blank, blank))], 1, 2)
    assert found.keys() == {"length", "clipped_ratio", "unscored"}
    assert found["unscored"] == 1.0


def test_without_a_scorer_there_is_no_best() -> None:
    assert [name for name in means([FIRST], 1, 4, chosen=False) if name.startswith("best")] == []


def test_intervals_are_over_problems() -> None:
    twenty = [FIRST, SECOND] * 10
    found = measures(twenty, [4], Intervals(level=0.9, resamples=400, seed=1), chosen=False)
    greedy = found["greedy"]
    assert (greedy.mean, greedy.level, greedy.problems) == (0.5, 0.9, 20)
    # the deviation of a mean of twenty halves is sqrt(0.25 / 20) = 0.112: 90 % lie within 1.645 of that
    assert greedy.low == pytest.approx(0.5 - 0.184, abs=0.07)
    assert greedy.high == pytest.approx(0.5 + 0.184, abs=0.07)


@pytest.mark.parametrize(("samples", "ks"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8])])
def test_counts_of_samples(samples: int, ks: list[int]) -> None:
    assert sample_counts(samples) == ks


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model, as a folder: it writes digits now and then, and no box."""
    folder = tmp_path_factory.mktemp("model")
    llama().save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


def own(model: Path, folder: Path, problems: Sequence[Problem], *overrides: str) -> dict[str, Interval]:
    """Measures in this process on problems of one's own."""
    write_problems(folder / "problems.jsonl", problems)
    base = [
        f"model.path={model}",
        "data=jsonl",
        f"data.path={folder / 'problems.jsonl'}",
        f"output_dir={folder / 'out'}",
        "device=cpu",
        "format=off",
        "sampling.samples=4",
        "sampling.max_completion_tokens=24",
        "estimate.resamples=20",
        "data.max_invalid_share=1",
    ]
    return evaluate(EVALUATE.load([*base, *overrides]))


def kept(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The newest results.json and the rows of its samples."""
    newest = max((folder / "out").iterdir())
    rows = pq.read_table(newest / "samples.parquet").to_pylist()
    return json.loads((newest / "results.json").read_text()), rows


def test_what_the_model_says_decides(model: Path, tmp_path: Path) -> None:
    blind = [Problem(f"p{i}", f"{i}+{i}=", ("-77",), "text") for i in range(6)]
    found = own(model, tmp_path, blind, "reward=random")
    assert found["pass@4"].mean == 0.0
    _, rows = kept(tmp_path)
    assert len(rows) == 6 * 5
    assert [row["greedy"] for row in rows[:5]] == [True, False, False, False, False]
    # the answer of a problem's first sample that has one becomes its gold
    said: dict[str, str] = {}
    for row in rows:
        answer = json.loads(row["accuracy/notes"]).get("answer")
        if not row["greedy"] and answer is not None and row["answer_class"] is not None:
            said.setdefault(row["problem_id"], answer)
    assert said
    knowing = [replace(p, gold=(said[p.id],)) for p in blind if p.id in said]
    again = own(model, tmp_path, knowing, "reward=random", "label=knowing")
    result, rows = kept(tmp_path)
    assert again["pass@4"].mean == 1.0
    sampled = [row for row in rows if not row["greedy"]]
    assert again["pass@1"].mean == pytest.approx(sum(row["accuracy/value"] for row in sampled) / len(sampled))
    for row in sampled:  # right answers are one class
        peers = [r for r in sampled if r["problem_id"] == row["problem_id"] and r["accuracy/value"] == 1]
        assert row["accuracy/value"] == 0 or {r["answer_class"] for r in peers} == {row["answer_class"]}
    assert result["figures"]["pass@4"]["problems"] == len(knowing)
    assert result["settings"]["sampling"]["samples"] == 4
    assert "best@4" in result["figures"]
    assert [path.name for path in tmp_path.glob("out/.*")] == []  # nothing half written


def test_what_cannot_be_measured_is_refused(model: Path, tmp_path: Path) -> None:
    some = [Problem("p", "1+1=", ("2",), "number")]
    with pytest.raises(ConfigError, match=r"estimate\.level=1: expected below 1"):
        own(model, tmp_path, some, "estimate.level=1")
    with pytest.raises(ConfigError, match="cannot be loaded as a causal language model"):
        own(tmp_path, tmp_path, some)
    with pytest.raises(DataError, match=r"all 1 prompts are longer than data\.max_prompt_tokens=2"):
        own(model, tmp_path, some, "data.max_prompt_tokens=2")
    assert not (tmp_path / "out").exists()


def test_a_run_is_measured_as_it_measured_itself(tmp_path: Path, program_env: Mapping[str, str]) -> None:
    trainer = Trainer(tmp_path, program_env)
    run = trainer.finish("steps=3", "optim.warmup_steps=1")
    last = metrics_of(run)[-1]
    data = [option for option in TINY if option.startswith("data.")]
    figures = []
    for place in ("model", "checkpoints/step_000003"):
        out = tmp_path / Path(place).name
        done = trainer.call(
            [
                sys.executable,
                "-m",
                "grpo.evaluate",
                *data,
                f"model.path={run / place}",
                f"output_dir={out}",
                "device=cpu",
                "reward=format",
                "sampling.samples=2",
                "sampling.max_completion_tokens=40",
            ]
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "pass@2" in done.stdout
        assert "another format" not in done.stdout
        (folder,) = out.iterdir()
        figures.append(json.loads((folder / "results.json").read_text())["figures"])
    assert figures[0] == figures[1]
    for ours, theirs in (
        ("greedy", "greedy"),
        ("pass@1", "accuracy"),
        ("pass@2", "pass@2"),
        ("format", "format"),
    ):
        assert figures[0][ours]["mean"] == pytest.approx(last[f"eval/heldout/{theirs}"])


def test_a_wrong_option_is_refused_before_torch_loads(program_env: Mapping[str, str], tmp_path: Path) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules));"
        "sys.argv = ['grpo.evaluate', 'model.path=x', 'sampling.sampels=3'];"
        "import grpo.evaluate; grpo.evaluate.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=program_env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "sampling.sampels" in done.stderr
    assert done.stdout.strip() == "False"
