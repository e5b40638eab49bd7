"""What loading refuses, each with the fix in its message."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_reward_models import SPECIAL, tiny_folder, tokenizer

from rewards.errors import ConfigError
from rewards.models.conventions import Convention, WorkedExample, save_convention
from rewards.models.engine import RewardModel
from rewards.models.presets import PRESETS
from rewards.models.rendering import Rendered, Renderer
from rewards.models.selfcheck import check_example, check_padding, check_rendering
from rewards.models.settings import ModelSettings

Tensors = dict[str, torch.Tensor]


def load(folder: Path, convention: str | None, reference: str | None = None) -> RewardModel:
    return RewardModel(
        ModelSettings(path=str(folder), convention=convention, reference=reference, device="cpu")
    )


def rewrite(folder: Path, change: Callable[[Tensors], Tensors]) -> Path:
    file = folder / "model.safetensors"
    tensors = change(load_file(file))
    save_file(tensors, file, {"format": "pt"})
    return folder


def without(*starts: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: value for key, value in tensors.items() if not key.startswith(starts)}


@pytest.mark.parametrize(
    ("preset", "change", "message"),
    [
        ("skywork-reward", without("score"), "no head score.weight: the model was saved without its head"),
        ("qwen2.5-math-prm", without("score.2"), "gives 32 numbers, head=classes needs 2 to 16"),
        ("skywork-o1-prm", without("v_head"), "no head v_head.summary.weight"),
        ("skywork-reward", without("model.layers.1"), "would be random"),
        ("math-shepherd", without("lm_head"), "would be random (lm_head.weight)"),
        (
            "skywork-reward",
            lambda tensors: tensors | {"score.weight": torch.zeros(2, 32)},
            "gives 2 numbers, head=scalar needs 1",
        ),
        (
            "skywork-reward",
            lambda tensors: tensors | {"score.weight": torch.zeros(1, 8)},
            "takes 8 numbers, the backbone gives 32",
        ),
        (
            "skywork-reward",
            lambda tensors: tensors | {"score.weight": torch.full((1, 32), torch.nan)},
            "its weights are broken",
        ),
    ],
)
def test_weights_that_would_score_wrongly(
    preset: str, change: Callable[[Tensors], Tensors], message: str, tmp_path: Path
) -> None:
    folder = rewrite(tiny_folder(preset, tmp_path), change)
    with pytest.raises(ConfigError) as refused:
        load(folder, preset)
    assert message in str(refused.value)


def test_a_model_of_another_kind_than_its_convention(tmp_path: Path) -> None:
    # A causal model where a two-class head was meant gives vocabulary-sized "step rewards" elsewhere.
    folder = tiny_folder("math-shepherd", tmp_path)
    with pytest.raises(ConfigError, match=r"no head score\.weight.*set head_name"):
        load(folder, "trl-prm")


def test_an_example_whose_value_is_another(tmp_path: Path) -> None:
    folder = tiny_folder("qwen2.5-math-prm", tmp_path)
    made = load(folder, "qwen2.5-math-prm")
    save_convention(folder, made.convention, made.worked_example())
    again = load(folder, None)
    assert again.version == made.version
    rewrite(
        folder, lambda tensors: tensors | {"score.2.bias": tensors["score.2.bias"] + torch.tensor([0, 1.0])}
    )
    with pytest.raises(ConfigError, match=r"the stored example gives .* stored is"):
        load(folder, None)
    assert load(folder, "qwen2.5-math-prm").version != made.version


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    folder = tiny_folder("qwen2.5-math-prm", tmp_path)
    made = load(folder, "qwen2.5-math-prm")
    save_convention(folder, made.convention, made.worked_example())
    file = folder / "chat_template.jinja"
    file.write_text(file.read_text().replace("\n{{ m['content'] }}", " {{ m['content'] }}"))  # off by a space
    with pytest.raises(ConfigError, match="the stored example gives"):
        load(folder, None)


def test_values_that_change_with_padding() -> None:
    def values(rows: object) -> list[tuple[float, ...]]:
        count = len(rows)  # type: ignore[arg-type]
        return [(0.5 + 0.1 * count,)] * count

    renderer = Renderer(tokenizer(), PRESETS["skywork-reward"])
    with pytest.raises(
        ConfigError, match=r"padding changes the values of a text from 0\.6 to 0\.7.*attention=eager"
    ):
        check_padding(renderer, values, "fp32")


def test_an_example_of_another_number_of_steps() -> None:
    renderer = Renderer(tokenizer(), PRESETS["trl-prm"])
    example = WorkedExample("Q", ("a", "b"), (0.5,))
    with pytest.raises(ConfigError, match="the stored example gives"):
        check_example(renderer, lambda rows: [(0.5, 0.5) for _ in rows], example, "fp32")


def test_a_tag_that_joins_what_follows() -> None:
    convention = Convention(kind="process", layout="plain", read_at="step", after_question="\n")
    rendered = Renderer(tokenizer(), convention).render("Q", ["One bal", "ls."])  # "balls" is one token
    assert rendered.overrun == (0,)

    class Joining(Renderer):
        def render(self, question: str, steps: object) -> Rendered:
            return Rendered((5, 6, 7, 8), (1, 2, 3), 1, overrun=(1,))

    with pytest.raises(ConfigError, match=r"end of step 2 reaches past it.*tokenise=alone"):
        check_rendering(Joining(tokenizer(), convention))


def test_fewer_positions_than_steps() -> None:
    class Merging(Renderer):
        def render(self, question: str, steps: object) -> Rendered:
            return Rendered((5, 6, 7, 8), (1, 3, 3), 1)

    with pytest.raises(ConfigError, match=r"3 steps are read at 2 positions"):
        check_rendering(Merging(tokenizer(), PRESETS["trl-prm"]))


def test_bos_written_twice() -> None:
    twice = tokenizer().__class__(
        tokenizer_object=tokenizer().backend_tokenizer,
        bos_token="<s>",
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        chat_template="<s>" + str(tokenizer().chat_template),
    )
    check_rendering(Renderer(twice, PRESETS["skywork-reward"]))
    with pytest.raises(ConfigError, match="bos twice"):
        check_rendering(Renderer(twice, replace(PRESETS["skywork-reward"], bos=True)))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template"),
        ("{% for m in messages %}{{ m['role'] }}{% endfor %}", "does not write every turn as it is"),
        ("{{ raise_exception('no system turn') }}", "refuses the convention's turns: no system turn"),
    ],
)
def test_templates_that_cannot_serve(template: str | None, message: str) -> None:
    other = tokenizer().__class__(
        tokenizer_object=tokenizer().backend_tokenizer, eos_token="<|im_end|>", chat_template=template
    )
    with pytest.raises(ConfigError) as refused:
        check_rendering(Renderer(other, PRESETS["skywork-reward"]))
    assert message in str(refused.value)


def test_a_tag_given_by_its_id() -> None:
    by_name = PRESETS["qwen2.5-math-prm"]
    place = SPECIAL.index("<extra_0>")
    by_id = replace(by_name, tag="", tag_id=place)
    steps = ["One.", "Two <extra_0>."]
    assert Renderer(tokenizer(), by_id).render("Q", steps) == Renderer(tokenizer(), by_name).render(
        "Q", steps
    )
    with pytest.raises(ConfigError, match="no such token"):
        Renderer(tokenizer(), replace(by_id, tag_id=10**6))
    with pytest.raises(ConfigError, match="no added token"):
        Renderer(tokenizer(), replace(by_id, tag_id=50))
    alone = replace(PRESETS["trl-prm"], tag="", tag_id=50)
    rendered = Renderer(tokenizer(), alone).render("Q", steps)
    assert [rendered.ids[read] for read in rendered.reads] == [50, 50]


def test_paths_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json in it"):
        load(tmp_path, "skywork-reward")
    with pytest.raises(ConfigError, match="neither a folder here nor to be had from the hub"):
        load(tmp_path / "absent", "skywork-reward")
    folder = tiny_folder("skywork-reward", tmp_path / "model")
    with pytest.raises(ConfigError, match="name a preset"):
        load(folder, None)


def test_scaled_logits_and_a_reference_that_is_missing(tmp_path: Path) -> None:
    folder = tiny_folder("implicit-prm", tmp_path)
    save_convention(folder, PRESETS["implicit-prm"])
    load(folder, None)  # the reference that lies in the folder
    reference = (folder / "reference").rename(tmp_path.with_name(tmp_path.name + "-reference"))
    with pytest.raises(ConfigError, match=r"model\.reference"):
        load(folder, None)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"final_logit_softcapping": 30.0}))
    with pytest.raises(ConfigError, match="final_logit_softcapping"):
        load(folder, "implicit-prm", str(reference))


def test_two_strings_that_are_one_token(tmp_path: Path) -> None:
    folder = tiny_folder("math-shepherd", tmp_path)
    save_convention(folder, replace(PRESETS["math-shepherd"], positive_token="+", negative_token="-+"))
    with pytest.raises(ConfigError, match="no two tokens of this tokenizer"):
        load(folder, None)
