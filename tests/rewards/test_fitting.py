"""Fits on tiny models: every head learns, the folder scores as the trained weights do, nothing leaks out."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from safetensors.torch import load_file
from tiny_reward_models import tiny_folder
from transformers import PreTrainedModel

import rewards.models.training as training
from rewards.errors import ConfigError, DataError, EngineError
from rewards.labelled import NEUTRAL, Example, OutcomeExample, PreferenceExample, ProcessExample
from rewards.models.conventions import read_convention
from rewards.models.engine import RewardModel
from rewards.models.fit_report import FIT_FILE, read_report
from rewards.models.fit_settings import FitPrecision, FitSettings, LoraSettings, LossSettings
from rewards.models.fitting import fit
from rewards.models.loading import load_weights
from rewards.models.measuring import measure
from rewards.models.presets import PRESETS
from rewards.models.settings import ModelSettings
from rewards.models.truncation import Request
from rewards.questions import split_by_question

SETTINGS = FitSettings(
    learning_rate=2e-3, epochs=2.0, batch_size=16, micro_batch=8, max_length=256, device="cpu"
)
SUMS = [(a, b) for a in range(6) for b in range(6)]
OUTCOMES: list[Example] = [
    OutcomeExample(f"What is {a} + {b}?", f"It is {a + b}. {'Yes' if right else 'No'}.", float(right))
    for a, b in SUMS
    for right in (True, False)
]
PAIRS: list[Example] = [
    PreferenceExample(f"What is {a} + {b}?", f"It is {a + b}. Yes.", f"It is {a}. No.", subset=f"s{a % 2}")
    for a, b in SUMS
]
SOLUTIONS: list[Example] = [
    ProcessExample(
        f"What is {a} + {b}?",
        (f"We add {a}.", f"{'Yes' if right else 'No'}, it is {a + b}.", "Done."),
        (NEUTRAL, float(right), 1.0 if right else None),
    )
    for a, b in SUMS
    for right in (True, False)
]
DATA = {"outcome": OUTCOMES, "pairs": PAIRS, "process": SOLUTIONS}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal language model without any head."""
    return tiny_folder("math-shepherd", tmp_path_factory.mktemp("base") / "model")


def run(base: Path, name: str, data: Sequence[Example], output: Path, settings: FitSettings = SETTINGS):
    train, heldout = split_by_question(data, 0.25, seed=0)
    return fit(str(base), PRESETS[name], train, heldout, settings, output)


def loaded(folder: Path) -> RewardModel:
    return RewardModel(ModelSettings(path=str(folder), device="cpu", max_length=256))


CASES = [
    ("sequence-classifier", "outcome", LossSettings(balance="question"), "auc_within"),
    ("rlhflow-orm", "outcome", LossSettings(), "auc"),
    ("skywork-reward", "pairs", LossSettings(centring=0.01), "accuracy"),
    ("rlhflow-orm", "pairs", LossSettings(), "accuracy"),
    ("trl-prm", "process", LossSettings(neutral="mask"), "auc"),
    ("trl-prm", "process", LossSettings(neutral="class", mean="sequence"), "auc"),
    ("math-shepherd", "process", LossSettings(neutral="mask", after_error="wrong"), "auc"),
    ("skywork-o1-prm", "process", LossSettings(neutral="mask"), "auc"),
    ("qwen2.5-math-prm", "process", LossSettings(neutral="mask"), "auc"),
    ("implicit-prm", "outcome", LossSettings(), "auc_within"),
    ("implicit-prm", "pairs", LossSettings(), "accuracy"),
]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_implicit_model_starts_from_a_ratio_of_zero(
    precision: FitPrecision, base: Path, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, precision=precision, learning_rate=1e-9, calibration="none")
    convention = replace(PRESETS["implicit-prm"], beta=1.0)
    report = fit(str(base), convention, OUTCOMES, [], settings, tmp_path / "out")
    # -log sigmoid(0); rows that are padded otherwise round otherwise
    assert [loss for _, loss in report.losses] == pytest.approx(
        [math.log(2)] * 9, abs=1e-4 if precision == "fp32" else 2e-2
    )


@pytest.mark.parametrize(("name", "kind", "loss", "metric"), CASES)
def test_every_head_learns_and_its_folder_scores_the_same(
    name: str, kind: str, loss: LossSettings, metric: str, base: Path, tmp_path: Path
) -> None:
    report = run(base, name, DATA[kind], tmp_path / "out", replace(SETTINGS, loss=loss, epochs=6.0))
    losses = [value for _, value in report.losses]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert (report.metrics[metric] or 0) > 0.8, report.metrics
    model = loaded(tmp_path / "out")
    _, example = read_convention(tmp_path / "out" / "reward_model.json")
    # The example's values were computed by the weights in memory; those of the folder are the same bits.
    assert example == model.worked_example()
    assert model.version == report.version
    assert report == read_report(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_fit_is_deterministic_and_leaves_the_process_as_it_was(base: Path, tmp_path: Path) -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = (random.random(), np.random.rand(), torch.rand(1).item())
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    shared = dict(AcceleratorState._shared_state), dict(GradientState._shared_state)
    weights = []
    for number in range(2):
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        run(base, "trl-prm", SOLUTIONS, tmp_path / f"out{number}")
        assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected
        torch.manual_seed(2)  # must not matter
        weights.append(load_file(tmp_path / f"out{number}" / "model.safetensors"))
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert (dict(AcceleratorState._shared_state), dict(GradientState._shared_state)) == shared
    assert accelerator.gradient_accumulation_steps == 3
    other = run(base, "trl-prm", SOLUTIONS, tmp_path / "other", replace(SETTINGS, seed=1))
    assert other.version != read_report(tmp_path / "out0").version


def test_nothing_is_written_to_the_terminal(
    base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(base, "sequence-classifier", OUTCOMES, tmp_path / "out", replace(SETTINGS, lora=LoraSettings(rank=2)))
    assert capfd.readouterr() == ("", "")


def test_micro_batches_and_padding_change_nothing(base: Path, tmp_path: Path) -> None:
    """Seen in the losses: AdamW makes a whole step of the rounding of a zero gradient."""
    settings = replace(SETTINGS, epochs=1.0, loss=LossSettings(mean="step", neutral="mask"))
    whole = run(base, "trl-prm", SOLUTIONS, tmp_path / "whole", replace(settings, micro_batch=16))
    parts = run(base, "trl-prm", SOLUTIONS, tmp_path / "parts", replace(settings, micro_batch=2))
    assert [loss for _, loss in parts.losses] == pytest.approx([loss for _, loss in whole.losses], abs=1e-5)


def test_the_kernel_of_attention_is_chosen_and_changes_nothing(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def noted(*given: Any) -> PreTrainedModel:
        asked.append(given[2].attention)
        return load_weights(*given)

    monkeypatch.setattr("rewards.models.preparing.load_weights", noted)
    settings = replace(SETTINGS, epochs=1.0)
    own = run(base, "sequence-classifier", OUTCOMES, tmp_path / "own", settings)
    eager = run(
        base, "sequence-classifier", OUTCOMES, tmp_path / "eager", replace(settings, attention="eager")
    )
    assert asked == [None, "eager"]
    assert [loss for _, loss in eager.losses] == pytest.approx([loss for _, loss in own.losses], abs=1e-4)
    with pytest.raises(ConfigError, match="attention=fast: expected one of eager, sdpa, flash_attention_2"):
        replace(settings, attention="fast")


def test_a_fit_in_bf16_never_rounds_its_weights(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounded, a model that has learnt much may give its worked example another value, and would be lost."""
    monkeypatch.setattr("rewards.models.selfcheck.TOLERANCE", {"fp32": 1e-4, "bf16": 0.0})
    settings = replace(SETTINGS, precision="bf16", epochs=4.0)
    report = run(base, "sequence-classifier", OUTCOMES, tmp_path / "out", settings)
    _, heldout = split_by_question(OUTCOMES, 0.25, seed=0)
    plain = measure(loaded(tmp_path / "out"), heldout)
    assert report.metrics["brier"] == pytest.approx(plain["brier"], abs=0.01)


def test_the_head_of_an_earlier_reward_model_is_kept(base: Path, tmp_path: Path) -> None:
    first = run(base, "sequence-classifier", OUTCOMES, tmp_path / "first")
    barely = replace(SETTINGS, learning_rate=1e-9, epochs=0.5)
    again = run(tmp_path / "first", "sequence-classifier", OUTCOMES, tmp_path / "again", barely)
    assert (first.head, again.head) == ("new", "kept")
    assert again.metrics["auc"] == first.metrics["auc"]
    request = [Request("What is 1 + 1?", ("It is 2. Yes.",))]
    before, after = (loaded(tmp_path / name).judge(request)[0].values for name in ("first", "again"))
    assert after == pytest.approx(before, abs=1e-4)


def test_an_implicit_model_keeps_its_first_reference(base: Path, tmp_path: Path) -> None:
    run(base, "implicit-prm", OUTCOMES, tmp_path / "first")
    run(tmp_path / "first", "implicit-prm", OUTCOMES, tmp_path / "again")
    original = load_file(base / "model.safetensors")
    for name in ("first", "again"):
        reference = load_file(tmp_path / name / "reference" / "model.safetensors")
        assert all(torch.equal(reference[key], original[key]) for key in reference)


@pytest.mark.parametrize("name", ["trl-prm", "math-shepherd"])
def test_adapters_are_merged_and_the_head_is_saved(name: str, base: Path, tmp_path: Path) -> None:
    settings = replace(
        SETTINGS, lora=LoraSettings(rank=4), epochs=6.0, learning_rate=1e-2, loss=LossSettings(neutral="mask")
    )
    report = run(base, name, SOLUTIONS, tmp_path / "out", settings)
    assert (report.metrics["auc"] or 0) > 0.8
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert not [key for key in weights if "lora" in key]
    _, example = read_convention(tmp_path / "out" / "reward_model.json")
    assert example == loaded(tmp_path / "out").worked_example()


class Killed(BaseException):
    """Stands for a signal: nothing catches it."""


@pytest.mark.parametrize("name", ["trl-prm", "implicit-prm"])
def test_an_interrupted_fit_goes_on_to_the_same_weights(
    name: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = SOLUTIONS if name == "trl-prm" else OUTCOMES
    settings = replace(SETTINGS, checkpoint_every=2)
    run(base, name, data, tmp_path / "whole", settings)
    collate, calls = training.collate, 0

    def interrupted(items: Sequence[training.Item], pad: int) -> object:
        nonlocal calls
        calls += 1
        if calls == 11:  # in the sixth step
            raise Killed
        return collate(items, pad)

    monkeypatch.setattr(training, "collate", interrupted)
    with pytest.raises(Killed):
        run(base, name, data, tmp_path / "out", settings)
    (work,) = tmp_path.glob(".out.fit-*")
    (whole,) = (work / "checkpoints").iterdir()
    torn = whole.with_name("checkpoint-999")  # killed while saving: the state, written last, is not there
    torn.mkdir()
    assert run(base, name, data, tmp_path / "out", settings).steps == read_report(tmp_path / "whole").steps
    assert calls < 11 + 2 * 7  # not from the start again
    files = [load_file(tmp_path / folder / "model.safetensors") for folder in ("whole", "out")]
    assert all(torch.equal(files[0][key], files[1][key]) for key in files[0])
    assert not list(tmp_path.glob(".out.fit-*"))


def test_a_finished_fit_is_not_done_again_and_another_is_refused(base: Path, tmp_path: Path) -> None:
    first = run(base, "sequence-classifier", OUTCOMES, tmp_path / "out")
    written = (tmp_path / "out" / FIT_FILE).stat().st_mtime_ns
    again = run(
        base, "sequence-classifier", OUTCOMES, tmp_path / "out", replace(SETTINGS, checkpoint_every=5)
    )
    assert again == first
    assert (tmp_path / "out" / FIT_FILE).stat().st_mtime_ns == written
    with pytest.raises(ConfigError, match="from other data, settings or base"):
        run(base, "sequence-classifier", OUTCOMES, tmp_path / "out", replace(SETTINGS, seed=5))
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="no report of a fit"):
        run(base, "sequence-classifier", OUTCOMES, tmp_path / "mine")


def test_long_and_unlabelled_examples_are_left_out_and_counted(base: Path, tmp_path: Path) -> None:
    long = [
        OutcomeExample("q1", "a7 " * 400, 1.0),
        OutcomeExample("q2", "b", 1.0),
        *(OutcomeExample(f"What is {n}?", text, float(text == "a")) for n in range(8) for text in "ab"),
    ]
    settings = replace(SETTINGS, loss=LossSettings(balance="none"), calibration="none")
    report = fit(str(base), PRESETS["sequence-classifier"], long, [], settings, tmp_path / "long")
    assert (report.left_out, report.examples, report.metrics) == ({"too_long": 1}, 17, {})
    balanced = replace(settings, loss=LossSettings(balance="question"))
    report = fit(str(base), PRESETS["sequence-classifier"], long, [], balanced, tmp_path / "balanced")
    assert report.left_out == {"one_kind": 2}
    steps = ("One thing. " * 10,) * 8
    solutions = [
        ProcessExample("q", steps, (1.0, 0.0, *[1.0] * 6)),
        ProcessExample("p", steps, (*[None] * 7, 1.0)),  # its only label lies beyond the room
        ProcessExample("q7 " * 200, ("a",), (1.0,)),
    ]
    report = fit(str(base), PRESETS["trl-prm"], solutions, [], SETTINGS, tmp_path / "solutions")
    assert (report.left_out, report.examples) == ({"no_label": 1, "too_long": 1}, 1)
    with pytest.raises(DataError, match="none of 1 examples can be trained on"):
        fit(str(base), PRESETS["trl-prm"], solutions[1:2], [], SETTINGS, tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "data", "loss", "told"),
    [
        ("trl-prm", OUTCOMES, {}, "no step labels"),
        ("trl-prm", PAIRS, {}, "no step labels"),
        ("sequence-classifier", SOLUTIONS, {}, "the convention is an outcome model's"),
        ("implicit-prm", SOLUTIONS, {}, "trained on outcomes or pairs"),
        ("sequence-classifier", [*OUTCOMES, *PAIRS], {}, "one kind, got outcome, preference"),
        ("sequence-classifier", [], {}, "no examples to train on"),
        (
            "sequence-classifier",
            OUTCOMES,
            {"centring": 0.1},
            r"loss\.centring=0\.1: has no effect on outcome",
        ),
        ("sequence-classifier", PAIRS, {"balance": "question"}, r"loss\.balance=question: has no effect"),
        ("trl-prm", SOLUTIONS, {"balance": "classes"}, "has no effect on process"),
        ("math-shepherd", SOLUTIONS, {"neutral": "class"}, "needs a convention with head=classes"),
    ],
)
def test_what_does_not_go_together_is_refused(
    name: str, data: list[Example], loss: dict[str, float | str], told: str, base: Path, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, loss=replace(LossSettings(), **loss))
    with pytest.raises(ConfigError, match=told) as caught:
        fit(str(base), PRESETS[name], data, [], settings, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0.0},
        {"micro_batch": 3},
        {"warmup": 1.0},
        {"epochs": float("nan")},
        {"max_length": 8},
        {"schedule": "step"},
        {"precision": "fp16"},
        {"checkpoint_every": 0},
        {"calibration": "isotonic"},
    ],
)
def test_settings_out_of_range_are_refused_by_name(change: dict[str, float | str]) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(change))}="):
        replace(SETTINGS, **change)


def test_heldout_questions_that_are_trained_on_and_platt_on_pairs_are_refused(
    base: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="1 of its questions are trained on"):
        fit(str(base), PRESETS["sequence-classifier"], OUTCOMES, OUTCOMES[:1], SETTINGS, tmp_path / "out")
    with pytest.raises(ConfigError, match="of another kind"):
        fit(str(base), PRESETS["sequence-classifier"], OUTCOMES, PAIRS[:1], SETTINGS, tmp_path / "out")
    with pytest.raises(ConfigError, match="calibration=platt"):
        run(base, "skywork-reward", PAIRS, tmp_path / "out", replace(SETTINGS, calibration="platt"))


def test_a_head_of_other_classes_is_refused(base: Path, tmp_path: Path) -> None:
    three = replace(SETTINGS, loss=LossSettings(neutral="class"), epochs=0.5)
    run(base, "trl-prm", SOLUTIONS, tmp_path / "three", three)
    convention, _ = read_convention(tmp_path / "three" / "reward_model.json")
    assert convention.negative_index == 0
    with pytest.raises(ConfigError, match="its head gives 3 numbers, training needs 2"):
        run(tmp_path / "three", "trl-prm", SOLUTIONS, tmp_path / "out")


@pytest.mark.parametrize("every", [None, 1])
def test_a_run_that_diverges_is_told_and_leaves_nothing(
    every: int | None, base: Path, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, learning_rate=1e30, checkpoint_every=every)
    with pytest.raises(EngineError, match=r"the loss is (nan|inf) at step \d+: lower learning_rate"):
        run(base, "sequence-classifier", OUTCOMES, tmp_path / "out", settings)
    assert list(tmp_path.iterdir()) == []


def test_divergence_in_the_last_steps_is_told(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_LOGGED", 0.5)  # a point every 2 * steps: none
    settings = replace(SETTINGS, learning_rate=1e30)
    with pytest.raises(EngineError, match=r"the loss is (nan|inf) at step"):
        run(base, "sequence-classifier", OUTCOMES, tmp_path / "out", settings)


def test_what_shows_nothing_is_counted(base: Path, tmp_path: Path) -> None:
    blank = [
        ProcessExample("What is 9 + 9?", ("", "It is 18."), (1.0, 1.0)),
        ProcessExample("What is 9 + 8?", (" \n",), (0.0,)),
        ProcessExample("What is 9 + 7?", ("Take 9.", "\u200b"), (1.0, None)),
    ]
    report = fit(str(base), PRESETS["trl-prm"], [*SOLUTIONS, *blank], [], SETTINGS, tmp_path / "steps")
    assert report.left_out == {"blank_step": 2, "empty": 1}  # the scorer gives the floor to an empty one
    assert (report.examples, report.empty) == (len(SOLUTIONS), 0)
    empty = [OutcomeExample("What is 9 + 9?", text, 0.0) for text in ("", "\n")]
    convention = PRESETS["sequence-classifier"]
    report = fit(str(base), convention, [*empty, *OUTCOMES], [], SETTINGS, tmp_path / "outcomes")
    assert report.left_out == {}  # a score without a floor is the model's, for an empty one too
    assert (report.examples, report.empty) == (len(OUTCOMES) + 2, 2)


def test_measured_is_what_the_folder_gives(base: Path, tmp_path: Path) -> None:
    report = run(base, "sequence-classifier", OUTCOMES, tmp_path / "out")
    _, heldout = split_by_question(OUTCOMES, 0.25, seed=0)
    assert measure(loaded(tmp_path / "out"), heldout).items() <= dict(report.metrics).items()
    calibrated = RewardModel(ModelSettings(path=str(tmp_path / "out"), device="cpu", calibrated=True))
    found = measure(calibrated, heldout)
    assert found["ece"] == pytest.approx(report.metrics["calibrated/ece"], abs=1e-6)
    assert found["auc"] == report.metrics["auc"]
