"""Examples become the tokens that scoring reads, in batches of like lengths; no gradient sees padding."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from tiny_reward_models import tiny_folder, tokenizer
from torch import Tensor, nn

from rewards.labelled import OutcomeExample, PreferenceExample, ProcessExample
from rewards.models.collating import Inputs, collate, encode, training_order
from rewards.models.fit_settings import FitSettings, LossSettings
from rewards.models.losses import class_logits, cross_entropy
from rewards.models.preparing import prepare
from rewards.models.presets import PRESETS
from rewards.models.rendering import Renderer

SETTINGS = FitSettings(max_length=256, device="cpu", loss=LossSettings(mean="step"))
SOLUTIONS = [
    ProcessExample("What is 3 + 4?", ("We add.", "It is 7.", "Done."), (1.0, 0.25, None)),
    ProcessExample("What?", ("It is a longer step, which says nothing at all.",), (0.0,)),
]


@pytest.mark.parametrize("epochs", [0.3, 1.0, 2.5])
def test_the_order_is_of_whole_epochs_in_batches_of_like_lengths(epochs: float) -> None:
    lengths = [7 * place % 101 for place in range(1000)]
    order = training_order(lengths, epochs, 8, seed=0)
    counts = Counter(order)
    assert len(order) == round(epochs * 1000)
    assert max(counts.values()) - min(counts[place] for place in range(1000)) <= 1
    batches = [[lengths[place] for place in order[first : first + 8]] for first in range(0, len(order), 8)]
    spread = sum(max(batch) - min(batch) for batch in batches) / len(batches)
    assert spread < 15  # 78 on average in a random order of 0 to 100
    starts = [batch[0] for batch in batches[:16]]
    assert starts != sorted(starts, reverse=True)  # long ones do not come first
    assert order == training_order(lengths, epochs, 8, seed=0)
    assert order != training_order(lengths, epochs, 8, seed=1)


def test_what_is_learnt_from_is_what_scoring_reads() -> None:
    renderer = Renderer(tokenizer(), PRESETS["trl-prm"])
    items, left_out = encode(renderer, SOLUTIONS, SETTINGS, 256)
    assert left_out == {}
    for item, example in zip(items, SOLUTIONS, strict=True):
        scored = renderer.render(example.question, example.steps)
        (row,) = item.rows
        assert (row.ids, row.reads) == (scored.ids, scored.reads)
    assert items[0].rows[0].masses == ((0.0, 1.0), (0.75, 0.25), (0.0, 0.0))
    assert [item.units for item in items] == [2, 1]


def test_a_batch_is_padded_on_the_right_and_counts_its_units() -> None:
    renderer = Renderer(tokenizer(), PRESETS["trl-prm"])
    items, _ = encode(renderer, SOLUTIONS, SETTINGS, 256)
    inputs = collate(items, pad=0)
    batch = inputs["batch"]
    lengths = [len(item.rows[0].ids) for item in items]
    assert batch["mask"].sum(dim=1).tolist() == lengths
    for place, item in enumerate(items):
        assert batch["ids"][place, : lengths[place]].tolist() == list(item.rows[0].ids)
    assert batch["reads"][:, 0].tolist() == [0, 0, 0, 1]
    assert len(inputs["labels"]) == 3
    assert batch["margins"].shape == (0,)


def test_pairs_come_as_all_chosen_then_all_rejected() -> None:
    renderer = Renderer(tokenizer(), PRESETS["skywork-reward"])
    pairs = [PreferenceExample("q", "good", "bad", 0.5), PreferenceExample("r", "fine", "poor")]
    items, _ = encode(renderer, pairs, SETTINGS, 256)
    batch = collate(items, pad=0)["batch"]
    texts = [
        tokenizer().decode(ids[mask == 1]) for ids, mask in zip(batch["ids"], batch["mask"], strict=True)
    ]
    assert [word for text in texts for word in ("good", "fine", "bad", "poor") if word in text] == [
        "good",
        "fine",
        "bad",
        "poor",
    ]
    assert batch["margins"].tolist() == [0.5, 0.0]


def gradients(module: nn.Module, inputs: list[Inputs]) -> list[Tensor]:
    """Accumulated over the batches as the Trainer does: each divides by the units of all."""
    module.zero_grad()
    units = torch.tensor(sum(len(batch["labels"]) for batch in inputs))
    for batch in inputs:
        module(batch["batch"], batch["labels"], units)["loss"].backward()
    return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("name", ["trl-prm", "math-shepherd", "skywork-o1-prm", "skywork-reward"])
def test_gradients_do_not_depend_on_batches_order_or_padding(name: str, tmp_path: Path) -> None:
    folder = tiny_folder(name, tmp_path)
    renderer = Renderer(tokenizer(), PRESETS[name])
    outcomes = [OutcomeExample(f"What is {n}?", "a b c " * n, n / 4) for n in range(1, 5)]
    examples = outcomes if PRESETS[name].kind == "outcome" else SOLUTIONS
    items, _ = encode(renderer, examples, SETTINGS, 256)
    module = prepare(folder, PRESETS[name], tokenizer(), SETTINGS).module
    whole = gradients(module, [collate(items, pad=0)])
    others = gradients(module, [collate([item], pad=5) for item in reversed(items)])
    assert whole
    for one, other in zip(whole, others, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_the_loss_is_the_cross_entropy_of_what_the_model_says(tmp_path: Path) -> None:
    folder = tiny_folder("skywork-o1-prm", tmp_path)
    renderer = Renderer(tokenizer(), PRESETS["skywork-o1-prm"])
    items, _ = encode(renderer, SOLUTIONS, SETTINGS, 256)
    prepared = prepare(folder, PRESETS["skywork-o1-prm"], tokenizer(), SETTINGS)
    inputs = collate(items, pad=0)
    logits = prepared.module.logits(inputs["batch"])
    # labels 1, 0.25 and 0 of three labelled steps, by the formula of BCE with logits
    z = (logits[:, 1] - logits[:, 0]).double()
    written = -(z[0].sigmoid().log() + 0.25 * z[1].sigmoid().log() + 0.75 * (-z[1]).sigmoid().log())
    written = (written - (-z[3]).sigmoid().log()) / 3
    assert prepared.module(inputs["batch"], inputs["labels"])["loss"].item() == pytest.approx(
        written.item(), rel=1e-5
    )
    assert cross_entropy(class_logits(z), inputs["batch"]["masses"]).item() / 3 == pytest.approx(
        written.item(), rel=1e-5
    )
