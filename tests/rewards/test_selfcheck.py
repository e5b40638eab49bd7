"""What loading refuses, each with the fix in its message."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_reward_models import CHAT, SPECIAL, tiny_folder, tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rewards.errors import ConfigError
from rewards.models.conventions import (
    CONVENTION_FILE,
    FIT_FILE,
    Convention,
    WorkedExample,
    save_convention,
)
from rewards.models.engine import RewardModel
from rewards.models.presets import PRESETS
from rewards.models.rendering import Rendered, Renderer
from rewards.models.selfcheck import check_example, check_padding, check_rendering
from rewards.models.settings import ModelSettings
from rewards.models.truncation import Request

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
        ("qwen2.5-math-prm", without("score.2.bias"), "some have a bias and some have none (score.0.bias, "),
        ("qwen2.5-math-prm", without("score.0.bias"), "some have a bias and some have none (score.0.weight"),
        (
            "qwen2.5-math-prm",
            lambda tensors: tensors | {"score.2.weight": torch.ones(2, 8)},
            "do not fit together (weights of (32, 32), (2, 8))",
        ),
        (
            "skywork-reward",
            lambda tensors: tensors | {"score.weight": torch.zeros(1, 32)},
            "gives the same value to every text",
        ),
        (
            "trl-prm",
            lambda tensors: tensors | {"score.weight": torch.ones(2, 32)},
            "gives the same value to every text",
        ),
        (
            "qwen2.5-math-prm",
            lambda tensors: tensors | {"score.0.weight": torch.zeros(32, 32)},
            "gives the same value to every text",
        ),
        (
            "math-shepherd",
            lambda tensors: tensors | {"lm_head.weight": torch.ones_like(tensors["lm_head.weight"])},
            "gives the same value to every text",
        ),
        (
            "skywork-reward",
            lambda tensors: tensors | {"model.layers.2.mlp.up_proj.weight": torch.ones(64, 32)},
            "have no place in the model that config.json describes (model.layers.2",
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
    with pytest.raises(ConfigError, match=r"the stored example gives .* stored is"):
        load(folder, "qwen2.5-math-prm")
    with pytest.raises(ConfigError, match=r"bf16 is too coarse for it, which dtype=fp32 would tell"):
        RewardModel(ModelSettings(path=str(folder), device="cpu", dtype="bf16"))
    (folder / CONVENTION_FILE).unlink()
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


def tokenizer_of(*special: str, corpus: str = "abc def 1 2 3 + -") -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of no other special tokens, whose merges are learnt from the corpus."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(special),
        show_progress=False,
    )
    core.train_from_iterator([corpus] * 4, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", chat_template=CHAT)


@pytest.mark.parametrize("name", ["qwen2.5-math-prm", "math-shepherd"])
def test_a_tag_that_is_no_token_of_this_tokenizer(name: str, tmp_path: Path) -> None:
    folder = tiny_folder(name, tmp_path)
    load(folder, name)
    tokenizer_of("<|im_start|>", "<|im_end|>").save_pretrained(folder)
    tag = PRESETS[name].tag
    with pytest.raises(ConfigError, match=rf"the tag '{tag}' is no token of its own .* tokenise=alone"):
        load(folder, name)


def test_what_counts_as_a_token_of_its_own() -> None:
    plain = Convention(kind="process", layout="plain", tag="+", head="classes", activation="softmax")
    learnt = tokenizer_of("<|im_end|>", corpus="x + y. One.+ Two.+")
    joined = Renderer(learnt, plain).render("Q", ["x", "One.", "y"])
    assert joined.split == (1,)  # ".+" is one token, "x+" and "y+" are two
    assert Renderer(learnt, replace(plain, before_tag=" ")).render("Q", ["One.", "y"]).split == ()  # " +"
    check_rendering(Renderer(learnt, replace(plain, before_tag=" ")))
    letter = replace(plain, tag="\u2713", before_tag=" ")  # three bytes of one character, three tokens
    assert Renderer(learnt, letter).render("Q", ["a", "b"]).split == (0, 1)
    check_rendering(Renderer(learnt, replace(letter, tokenise="alone")))


def test_a_tag_that_the_tokenizer_does_not_know() -> None:
    core = Tokenizer(models.WordLevel({"<unk>": 0, "One": 1, "box": 2}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    words = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")
    convention = Convention(
        kind="process",
        layout="plain",
        step_join="\n",
        before_tag=" ",
        tag="ки",
        head="classes",
        activation="softmax",
    )
    for tokenise in ("together", "alone"):
        with pytest.raises(ConfigError, match=r"no token of its own .* read at '<unk>'"):
            check_rendering(Renderer(words, replace(convention, tokenise=tokenise)))


def test_a_preset_that_the_folder_contradicts(tmp_path: Path) -> None:
    folder = tiny_folder("trl-prm", tmp_path)
    made = load(folder, "trl-prm")
    other = replace(made.convention, aggregation="mean", strategy="newline")  # these change no step's value
    save_convention(folder, other, made.worked_example())
    assert load(folder, "trl-prm").convention == PRESETS["trl-prm"]
    for name in ("pure-prm", "qwen2.5-math-prm"):
        with pytest.raises(ConfigError, match=rf"convention={name}: .*tag=.*: leave model.convention out"):
            load(folder, name)
    save_convention(folder, replace(made.convention, negative_index=0), made.worked_example())
    with pytest.raises(ConfigError, match="negative_index=None and not 0"):
        load(folder, "trl-prm")


def test_a_convention_without_a_worked_example(tmp_path: Path) -> None:
    folder = tiny_folder("trl-prm", tmp_path)
    save_convention(folder, PRESETS["trl-prm"])
    with pytest.warns(UserWarning, match="has no worked example"):
        load(folder, None)
    (folder / FIT_FILE).write_text("{}")  # rewards.fit writes an example: somebody took it out
    with pytest.raises(ConfigError, match=r"has no worked example, which rewards\.fit writes"):
        load(folder, None)


def test_a_pad_token_that_was_added_later_is_only_a_filler(tmp_path: Path) -> None:
    folder = tiny_folder("trl-prm", tmp_path)
    requests = [Request("Q", ("It is 7.", "So 7.")), Request("Q", ("One box holds 3 + 4 = 7 [PAD] balls.",))]
    before = load(folder, "trl-prm").judge(requests)
    grown = PreTrainedTokenizerFast.from_pretrained(folder)
    grown.add_special_tokens({"pad_token": "[PAD]"})
    assert grown.pad_token_id == len(tokenizer())  # one behind the last row of the embedding
    grown.save_pretrained(folder)
    after = load(folder, "trl-prm").judge(requests)
    assert after[0] == before[0]
    assert after[1].failure is None


def test_tokens_without_a_row_of_the_embedding(tmp_path: Path) -> None:
    folder = tiny_folder("qwen2.5-math-prm", tmp_path)
    grown = PreTrainedTokenizerFast.from_pretrained(folder)
    grown.add_tokens(["<<new>>", "<<newer>>"])
    grown.save_pretrained(folder)
    with pytest.raises(ConfigError, match=r"2 tokens without a row .*'<<new>>'.* resize the embedding"):
        load(folder, "qwen2.5-math-prm")
    other = PreTrainedTokenizerFast.from_pretrained(tiny_folder("qwen2.5-math-prm", folder))
    other.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    other.chat_template = CHAT.replace(
        "<|im_start|>", "<turn>"
    )  # a text cannot hold it, but every input does
    other.save_pretrained(folder)
    with pytest.raises(ConfigError, match=r"1 tokens without a row .*'<turn>'"):
        load(folder, "qwen2.5-math-prm")


def test_a_row_that_cannot_be_read_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(tiny_folder("trl-prm", tmp_path), "trl-prm")
    requests = [Request("Q", (text,)) for text in ("One.", "Two.", "Three 777.", "Four.", "Five.")]
    whole = model.judge(requests)
    read = model._read

    for fault in (IndexError, RuntimeError):

        def broken(rows: Sequence[Rendered], fault: type[Exception] = fault) -> list[tuple[float, ...]]:
            if any("777" in model._renderer.tokenizer.decode(list(row.ids)) for row in rows):
                raise fault("index out of range in self")
            return read(rows)

        monkeypatch.setattr(model, "_read", broken)
        judged = model.judge(requests)
        assert judged[2].failure == "index out of range in self"
        for place in (0, 1, 3, 4):
            assert judged[place].values == pytest.approx(whole[place].values, abs=1e-6)


def test_a_template_that_leaves_the_system_turn_out(tmp_path: Path) -> None:
    folder = tiny_folder("qwen2.5-math-prm", tmp_path)
    without_system = CHAT.replace(
        "{% for m in messages %}", "{% for m in messages if m['role'] != 'system' %}"
    )
    (folder / "chat_template.jinja").write_text(without_system)
    with pytest.raises(ConfigError, match=r"leaves out the system turn .*Please reason step by step"):
        load(folder, "qwen2.5-math-prm")
    (folder / "chat_template.jinja").write_text(CHAT.replace("m['content']", "m['content'] | trim"))
    load(folder, "qwen2.5-math-prm")


def test_a_model_that_is_its_own_reference(tmp_path: Path) -> None:
    folder = tiny_folder("implicit-prm", tmp_path)
    with pytest.raises(ConfigError, match=r"model.reference=.*: is the model itself"):
        load(folder, "implicit-prm", str(folder))
