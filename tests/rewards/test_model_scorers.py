"""The scorers over reward models: spans, verdicts, notes, laziness, and their place in a mix."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_reward_models import tiny_folder, tokenizer

import rewards
from rewards.models import engine
from rewards.models.conventions import save_convention
from rewards.models.outcome import OutcomeScorer
from rewards.models.presets import PRESETS
from rewards.models.process import ProcessScorer
from rewards.models.settings import ModelSettings
from rewards.types import Problem, Reason, Sample, Score, Verdict

PROBLEM = Problem("p", "A box holds 3 red and 4 blue balls. How many do 5 boxes hold?", ("35",))
THOUGHT = "<think>One box holds 3+4=7.\n\nFive hold 5*7=35.\n</think>"
TEXT = THOUGHT + "\n\\boxed{35}"


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> ModelSettings:
    folder = tiny_folder("qwen2.5-math-prm", tmp_path_factory.mktemp("prm"))
    return ModelSettings(path=str(folder), convention="qwen2.5-math-prm", device="cpu", max_length=512)


@pytest.fixture(scope="module")
def orm(tmp_path_factory: pytest.TempPathFactory) -> ModelSettings:
    folder = tiny_folder("skywork-reward", tmp_path_factory.mktemp("orm"))
    return ModelSettings(path=str(folder), convention="skywork-reward", device="cpu", max_length=512)


def judged(scorer: OutcomeScorer | ProcessScorer, text: str, prefill: str = "") -> Score:
    (score,) = scorer.score([Sample(PROBLEM, text, prefill=prefill)])
    return score


def test_steps_are_spans_of_the_text_with_the_values_of_the_model(prm: ModelSettings) -> None:
    score = judged(ProcessScorer(model=prm), TEXT)
    pieces = [TEXT[step.start : step.end] for step in score.steps]
    assert pieces == ["<think>One box holds 3+4=7.\n\n", "Five hold 5*7=35.\n</think>\n", "\\boxed{35}"]
    (direct,) = engine.reward_model(prm).judge([engine.Request(PROBLEM.prompt, tuple(pieces))])
    assert [step.value for step in score.steps] == pytest.approx(list(direct.values), abs=1e-6)
    product = score.steps[0].value * score.steps[1].value * score.steps[2].value
    assert score.value == pytest.approx(product)
    assert (score.verdict, score.reason) == (Verdict.SCORED, Reason.STEPS)
    assert score.notes == {"aggregation": "product"}


def test_aggregation_and_strategy_can_be_chosen(prm: ModelSettings) -> None:
    score = judged(ProcessScorer(model=prm, aggregation="last", strategy="length"), TEXT)
    assert len(score.steps) == 2  # thought and answer
    assert score.value == score.steps[-1].value
    assert score.notes == {"aggregation": "last"}


def test_what_the_template_had_written_is_part_of_the_first_step(prm: ModelSettings) -> None:
    opened = judged(ProcessScorer(model=prm), TEXT.removeprefix("<think>"), prefill="<think>")
    whole = judged(ProcessScorer(model=prm), TEXT)
    assert [s.value for s in opened.steps] == pytest.approx([s.value for s in whole.steps], abs=1e-6)
    assert opened.steps[0].end == whole.steps[0].end - len("<think>")


def test_an_outcome_model_gives_one_value(orm: ModelSettings) -> None:
    score = judged(OutcomeScorer(model=orm), TEXT)
    (direct,) = engine.reward_model(orm).judge([engine.Request(PROBLEM.prompt, (TEXT,))])
    assert score.value == pytest.approx(direct.values[0], abs=1e-6)
    assert (score.reason, score.steps, score.notes) == (Reason.MODEL, (), {})


@pytest.mark.parametrize("text", ["", " \n ", "\u200b"])
def test_nothing_visible_earns_the_floor_where_there_is_one(
    prm: ModelSettings, orm: ModelSettings, text: str
) -> None:
    score = judged(ProcessScorer(model=prm), text)
    assert (score.value, score.reason) == (0.0, Reason.NO_STEPS)
    assert [(step.start, step.end, step.value) for step in score.steps] == [(0, len(text), 0.0)] * bool(text)
    assert judged(OutcomeScorer(model=orm), text).reason is Reason.MODEL  # logits have no floor


def test_a_long_completion_is_said_to_be_read_in_part(prm: ModelSettings, orm: ModelSettings) -> None:
    text = "One box holds 3 red and 4 blue balls.\n\n" * 60
    score = judged(ProcessScorer(model=prm), text)
    left_out = int(score.notes["steps_left_out"])
    assert 0 < left_out < 60
    assert len(score.steps) + left_out == 60
    assert score.steps[0].start == 0
    assert all(a.end == b.start for a, b in zip(score.steps, score.steps[1:], strict=False))
    assert int(judged(OutcomeScorer(model=orm), text).notes["steps_left_out"]) > 0


def test_a_question_without_room_abstains_whatever_the_completion(
    prm: ModelSettings, orm: ModelSettings
) -> None:
    long = replace(PROBLEM, prompt="How many? " * 500)
    samples = [Sample(long, text) for text in (TEXT, "", "x" * 9000)]
    for scorer in (ProcessScorer(model=prm), OutcomeScorer(model=orm)):
        for score in scorer.score(samples):
            assert (score.verdict, score.reason) == (Verdict.ABSTAINED, Reason.PROMPT_TOO_LONG)
            assert int(score.notes["prompt_tokens"]) > int(score.notes["max_length"]) == 512


def test_a_value_that_is_no_number_is_our_failure(
    monkeypatch: pytest.MonkeyPatch, prm: ModelSettings, orm: ModelSettings
) -> None:
    for scorer in (ProcessScorer(model=prm), OutcomeScorer(model=orm)):
        model = engine.reward_model(scorer.model)

        def broken(rows: list[engine.Rendered]) -> list[tuple[float, ...]]:
            return [(float("nan"),) * len(row.reads) for row in rows]

        monkeypatch.setattr(model, "_read", broken)
        score = judged(scorer, TEXT)
        assert (score.verdict, score.reason) == (Verdict.FAILED, Reason.INTERNAL)
        assert "nan" in score.notes["note"]


def test_trap_40_pad_that_is_eos_changes_nothing(prm: ModelSettings, tmp_path: Path) -> None:
    folder = tiny_folder("qwen2.5-math-prm", tmp_path)
    same = tokenizer().__class__.from_pretrained(folder)
    same.pad_token = same.eos_token
    same.save_pretrained(folder)
    samples = [Sample(PROBLEM, TEXT), Sample(PROBLEM, TEXT * 3), Sample(PROBLEM, "It ends.<|im_end|>")]
    one = ProcessScorer(model=prm).score(samples)
    other = ProcessScorer(model=replace(prm, path=str(folder))).score(samples)
    for a, b in zip(one, other, strict=True):
        assert [s.value for s in a.steps] == pytest.approx([s.value for s in b.steps], abs=1e-5)


def test_survives_pickle_by_loading_again(monkeypatch: pytest.MonkeyPatch, prm: ModelSettings) -> None:
    scorer = ProcessScorer(model=prm)
    before = judged(scorer, TEXT)
    packed = pickle.dumps(scorer)
    assert len(packed) < 2000  # settings, no weights
    monkeypatch.setattr(engine, "_loaded", {})
    assert judged(pickle.loads(packed), TEXT) == before


def test_threads_share_one_model(prm: ModelSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_loaded", {})
    scorer = ProcessScorer(model=prm)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: judged(scorer, TEXT), range(4)))
    assert found == [found[0]] * 4
    assert len(engine._loaded) == 1


def test_a_folder_that_says_how_it_is_read_needs_no_convention(prm: ModelSettings) -> None:
    folder = Path(prm.path)
    save_convention(folder, PRESETS["qwen2.5-math-prm"], engine.reward_model(prm).worked_example())
    own = replace(prm, convention=None)
    assert judged(ProcessScorer(model=own), TEXT) == judged(ProcessScorer(model=prm), TEXT)
    with pytest.raises(rewards.ConfigError, match="use reward=prm"):
        OutcomeScorer(model=own).score([Sample(PROBLEM, TEXT)])


def test_mixes_with_rules_and_passes_its_steps_on(prm: ModelSettings) -> None:
    place = "reward.components.prm.scorer.model"
    scorer = rewards.load_scorer(
        "verifiable+format+prm", f"{place}.path={prm.path}", f"{place}.convention={prm.convention}",
        f"{place}.device=cpu", "reward.components.prm.gate=accuracy",
    )  # fmt: skip
    right, wrong = scorer.score([Sample(PROBLEM, TEXT), Sample(PROBLEM, THOUGHT + "\n\\boxed{7}")])
    values = {part.name: part.score.value for part in right.parts}
    assert right.value == pytest.approx(1 + 0.2 + 0.5 * values["prm"])  # type: ignore[operator]
    assert len(right.steps) == 3
    assert {part.name: part.weight for part in wrong.parts}["prm"] == 0.0


def test_building_and_checking_loads_no_torch(program_env: Mapping[str, str]) -> None:
    code = (
        "import sys, rewards\n"
        "place = 'reward.components.{}.scorer.model.path=some/model'\n"
        "scorer = rewards.load_scorer('orm+prm', place.format('orm'), place.format('prm'))\n"
        "assert scorer.score([]) == []\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(program_env), check=True
    )
    assert done.stdout.strip() == "False"


def test_a_path_that_must_be_given_is_asked_for() -> None:
    with pytest.raises(
        rewards.ConfigError, match=r"reward\.components\.prm\.scorer\.model\.path: a value is needed"
    ):
        rewards.load_scorer("prm")
