"""The checks across settings of training, the hash of a run, and that a refusal needs no torch."""

import subprocess
import sys

import pytest

from grpo.config import TRAIN, config_hash
from grpo.credit_config import credit_notes
from rewards.errors import ConfigError

HUB = ["model=hub", "model.name=some/model"]


def refusal(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        TRAIN.load(overrides)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("overrides", "start", "remedy"),
    [
        (["rollout.group_size=1"], "rollout.group_size=1: expected >= 2", "because"),
        (["rollout.group_size=0", "algorithm=ppo"], "rollout.group_size=0: expected", ">= 1"),
        (
            ["algorithm=ppo", "credit=process"],
            "credit.source=process: with algorithm.baseline=value",
            "set credit=outcome",
        ),
        (["credit.form=sum"], "credit.form=sum: credit=outcome credits no steps", "set credit.form=null"),
        (["credit.baseline=pool"], "credit.baseline=pool: credit=outcome credits no steps", "null"),
        (["credit=both", "credit.baseline=null"], "credit.baseline=null: credit=both needs one of", "pool"),
        (
            ["credit=process", "credit.form=min", "credit.baseline=position"],
            "credit.baseline=position: credit.form=min compares the minima",
            "set credit.baseline=pool",
        ),
        (
            ["credit=process"],
            "credit=process: no component of the reward (accuracy, format) gives steps",
            "reward=verifiable+arithmetic_steps",
        ),
        (
            ["credit=both"],
            "credit=both: no component of the reward (accuracy, format) gives steps",
            "set credit=outcome",
        ),
        (
            ["reward=arithmetic_steps+prm", "reward.components.prm.scorer.model.path=x", "credit=process"],
            "credit=process: arithmetic_steps and prm both give steps",
            "leave arithmetic_steps or prm out of reward",
        ),
        (
            [
                "reward=verifiable+arithmetic_steps",
                "credit=both",
                "reward.components.arithmetic_steps.weight=-1",
            ],
            "reward.components.arithmetic_steps.weight=-1: credit=both pays its steps",
            "expected 0",
        ),
        (["algorithm.value.gamma=1"], "algorithm.value.gamma=1: algorithm.value is null here", "no settings"),
        (["rollout.prompts_per_step=0"], "rollout.prompts_per_step=0: expected", ">= 1"),
        (
            ["rollout.prompts_per_step=5000"],
            "rollout.prompts_per_step=5000: expected at most",
            "train_size=4000",
        ),
        (["rollout.temperature=0"], "rollout.temperature=0.0: expected", "> 0"),
        (["optim.schedule=cosin"], "optim.schedule=cosin: expected one of", "did you mean 'cosine'?"),
        (
            ["steps=80", "optim.warmup_steps=80"],
            "optim.warmup_steps=80: expected fewer than steps=80, or the learning rate never reaches its",
            "peak; optim.warmup_steps=0 does without",
        ),
        (["optim.learning_rate=nan"], "optim.learning_rate=nan: expected a finite number", "> 0"),
        (["max_failed_share=1.5"], "max_failed_share=1.5: expected", "<= 1"),
        (["device=gpu"], "device=gpu: expected auto, cpu, cuda or cuda:N", ""),
        (["device=cpu:1"], "device=cpu:1: expected auto, cpu, cuda or cuda:N", ""),
        (["label='a b'"], "label='a b': expected letters", "folder"),
        (["label=''"], "label='': expected letters", "folder"),
        (["model=hub"], "model.name: a value is needed", "give model.name="),
        (["model.name=x"], "model.name=x: the tiny model is made on the spot", "use model=hub"),
        (["model.layers=null"], "model.layers=null: expected a number", "model=tiny"),
        (["model.heads=5"], "model.hidden_size=128: expected a multiple of twice model.heads=5", ""),
        ([*HUB, "model.layers=3"], "model.layers=3: a hub model has its own shape", "leave it out"),
        (["data.path=x"], "data.path=x: sums are made on the spot", "use data=jsonl"),
        (["data.max_operand=null"], "data.max_operand=null: expected a number", ""),
        (["data.terms=null"], "data.terms=null: expected a number", ""),
        (["data.terms=9"], "data.terms=9: expected a finite number", "<= 8"),
        (["data.train_size=null"], "data.train_size=null: expected a number", ""),
        (
            ["data=gsm8k", "coldstart.steps=400"],
            "coldstart.steps=400: data=gsm8k has no worked thoughts",
            "use model=hub",
        ),
        ([*HUB, "data=gsm8k", "data.terms=3"], "data.terms=3: only data=arithmetic has it", "null"),
        (
            [*HUB, "data=gsm8k", "data.slip_rate=0.1"],
            "data.slip_rate=0.1: only data=arithmetic has it",
            "null",
        ),
        ([*HUB, "data=jsonl"], "data.path: a value is needed", "give data.path="),
        ([*HUB, "data=jsonl", "data.path=null"], "data.path: data=jsonl needs a file", "data.path=problems"),
        (
            ["algorithm.baseline=group_men"],
            "algorithm.baseline=group_men: expected one of",
            "did you mean 'group_mean'?",
        ),
        (
            ["format.mode=maybe"],
            "format.mode=maybe: expected one of required, optional",
            "",
        ),
        (["format.think_close=null"], "format.think_close=None: expected str", ""),
        (
            ["reward.components.format.gate=acc"],
            "reward.components.format.gate=acc: expected the name",
            "accuracy",
        ),
    ],
)
def test_settings_that_cannot_be_kept_are_refused_with_the_remedy(
    overrides: list[str], start: str, remedy: str
) -> None:
    lines = refusal(*overrides)
    assert len(lines) == 1
    assert lines[0].startswith(start)
    assert remedy in lines[0]


def test_several_conflicts_are_told_at_once() -> None:
    lines = refusal("rollout.group_size=1", "device=gpu", "data.path=x")
    assert [line.split("=")[0] for line in lines] == ["data.path", "rollout.group_size", "device"]


ALONE = ["rollout.group_size=1", "algorithm=reinforce_pp"]
SUCCESS = "algorithm.scale=group_mean"


@pytest.mark.parametrize(
    "overrides",
    [
        ["rollout.group_size=1", "algorithm=ppo"],
        ALONE,
        [*ALONE, "algorithm.baseline=none"],
        [*ALONE, "algorithm.baseline=none", "algorithm.scale=none", "rollout.prompts_per_step=1"],
    ],
)
def test_what_compares_no_completions_of_a_prompt_needs_no_group(overrides: list[str]) -> None:
    assert TRAIN.load(overrides).rollout.group_size == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["rollout.group_size=1", "algorithm=rloo"], "others of its prompt"),
        ([*ALONE, "credit=both"], "a step is compared"),
        ([*ALONE, "rollout.prompts_per_step=1"], "algorithm.baseline=batch_mean: .* nothing to compare"),
        ([*ALONE, "rollout.prompts_per_step=1"], "algorithm.scale=batch_std: .* nothing to compare"),
        (["rollout.group_size=2", "algorithm.scale=leave_one_out_std"], "spread is always 0; set rollout.g"),
        ([SUCCESS, "reward=verifiable+length"], "'length' makes rewards negative"),
        ([SUCCESS, "reward=verifiable+repetition"], "'repetition' makes rewards negative"),
        ([SUCCESS, "reward=verifiable+format", "reward.components.format.weight=-1"], "'format' makes rew"),
        (
            [
                SUCCESS,
                "algorithm.combine=normalize_then_sum",
                "reward=verifiable+length",
                "reward.components.length.gate=accuracy",
            ],
            "'length' makes rewards negative",
        ),
        (
            [
                "algorithm.combine=normalize_then_sum",
                "reward=verifiable+format",
                "reward.components.format.weight=0",
            ],
            "there is only one reward to normalise",
        ),
        (["algorithm=dr_grpo", "credit=process"], "algorithm.scale=none: credit=process compares steps"),
    ],
)
def test_comparisons_without_effect_or_meaning_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TRAIN.load(overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["reward=verifiable+format"],
        ["reward=verifiable+length", "reward.components.length.gate=accuracy"],
        ["reward=verifiable+length", "reward.components.length.weight=0"],
    ],
)
def test_rewards_that_are_never_negative_may_be_divided_by_their_mean(overrides: list[str]) -> None:
    assert TRAIN.load([SUCCESS, *overrides]).algorithm.scale == "group_mean"


STEPPED = ["reward=verifiable+format+arithmetic_steps", "credit=process"]


def notes(*overrides: str) -> list[str]:
    config = TRAIN.load(overrides)
    return credit_notes(config.credit, config.reward)


def test_what_decides_nothing_under_process_credit_is_told() -> None:
    assert notes() == []
    assert notes("reward=arithmetic_steps", "credit=process") == []
    assert notes(STEPPED[0], "credit=both") == []
    (unpaid,) = notes(*STEPPED)
    assert "the steps of arithmetic_steps alone; accuracy, format: logged, not paid" in unpaid
    (gated,) = notes(*STEPPED, "reward.components.arithmetic_steps.gate=accuracy")
    assert "alone, and by none where accuracy did not pass; format: logged, not paid" in gated


def test_steps_can_be_paid_through_credit_alone() -> None:
    weightless = "reward.components.arithmetic_steps.weight=0"
    for credit in ("process", "both"):
        config = TRAIN.load([STEPPED[0], f"credit={credit}", weightless])
        assert config.credit.source == credit
        assert config.reward.components["arithmetic_steps"].weight == 0
    assert TRAIN.load([STEPPED[0], "credit=both", "algorithm=rloo"]).algorithm.baseline == "leave_one_out"


def test_devices_that_exist_are_taken() -> None:
    for device in ("auto", "cpu", "cuda", "cuda:3"):
        assert TRAIN.load([f"device={device}"]).device == device


def test_the_hash_is_of_what_is_computed() -> None:
    first = config_hash(TRAIN.load())
    assert len(first) == 12
    same = [
        "resume=never",
        "output_dir=elsewhere",
        "label=other",
        "dry_run=true",
        "log.completions=5",
        "reward=format+verifiable",
    ]
    assert config_hash(TRAIN.load(same)) == first
    for other in (
        "seed=1",
        "steps=81",
        "reward=verifiable",
        "reward.components.format.weight=0.1",
        "algorithm=dapo",
    ):
        assert config_hash(TRAIN.load([other])) != first


def test_the_hash_is_the_same_in_another_process() -> None:
    code = "from grpo.config import TRAIN, config_hash; print(config_hash(TRAIN.load(['seed=5'])))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == config_hash(TRAIN.load(["seed=5"]))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["reward=verifable"], "error: reward=verifable: no such reward"),
        (["rollout.grup_size=4"], "did you mean 'rollout.group_size'?"),
        (["-m", "seed=0,1", "steps=many"], "error: steps=many: expected int"),
    ],
)
def test_a_refused_training_loads_no_torch(arguments: list[str], expected: str) -> None:
    # A None in sys.modules makes any import of torch fail.
    code = (
        "import sys, runpy; sys.modules['torch'] = None; runpy.run_module('grpo.train', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
