"""Low-rank adapters: what they leave alone, what is trained, and that peft reads back what is stored."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from fakes import TOKENIZER
from transformers import PreTrainedModel

from grpo.adapters import add_adapter, save_adapter, without_adapter
from grpo.tiny import TinyShape, tiny_model

peft = pytest.importorskip("peft")
IDS = torch.tensor([[5, 6, 7, 8, 9]])


def base_model() -> PreTrainedModel:
    return tiny_model(TOKENIZER, TinyShape(16, 2, 2), seed=0).eval()


def adapted(seed: int = 0) -> PreTrainedModel:
    model = base_model()
    add_adapter(model, 4, seed)
    return model


def trained() -> PreTrainedModel:
    """An adapter that is no longer 0."""
    model = adapted()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def test_a_new_adapter_adds_nothing_and_alone_is_trained() -> None:
    model = adapted()
    assert torch.equal(logits(model), logits(base_model()))
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert len(names) == 2 * 7 * 2  # A and B of the seven linear layers of two blocks
    assert all("lora_" in name for name in names)


def test_the_seed_decides_and_the_global_state_is_left_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = (adapted(seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    name = next(name for name in first if "lora_A" in name)
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])


def test_switched_off_it_is_the_base_model_to_the_bit_and_comes_back() -> None:
    model = trained()
    before = logits(model)
    assert not torch.equal(before, logits(base_model()))
    with without_adapter(model):
        assert torch.equal(logits(model), logits(base_model()))
    assert torch.equal(logits(model), before)
    assert any(parameter.requires_grad for parameter in model.parameters())


def test_it_comes_back_after_an_error() -> None:
    model = trained()
    before = logits(model)
    with pytest.raises(RuntimeError, match="inside"), without_adapter(model):
        raise RuntimeError("inside")
    assert torch.equal(logits(model), before)


def test_peft_reads_what_is_stored(tmp_path: Path) -> None:
    model = trained()
    save_adapter(model, tmp_path / "model")
    assert json.loads((tmp_path / "model" / "adapter_config.json").read_text())["r"] == 4
    loaded = peft.PeftModel.from_pretrained(base_model(), tmp_path / "model").eval()
    assert torch.equal(logits(loaded), logits(model))


def test_a_copy_keeps_its_adapter() -> None:
    model = trained()
    assert torch.equal(logits(copy.deepcopy(model)), logits(model))
