"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685) in the linear layers of a model, by peft.

Knows how to put them in, switch them off and store them; nothing of what is trained. peft is an extra, loaded
where an adapter is asked for. Its own functions are called rather than those transformers wraps around them,
which ask for a peft newer than there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import PreTrainedModel

from rewards.errors import ConfigError

_ADAPTER = "default"


def add_adapter(model: PreTrainedModel, rank: int, seed: int) -> None:
    """Puts a new adapter into all linear layers but the head, in place; from then on only it is trained.

    It adds nothing yet: its second matrix is 0. The scale is alpha / rank = 2.

    Raises:
        ConfigError: peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model  # an extra: full training does not need it
    except ImportError as error:
        raise ConfigError(
            f"model.lora_rank={rank}: needs peft; pip install 'plumbline[lora]', or set model.lora_rank=0"
        ) from error
    settings = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
        base_model_name_or_path=model.name_or_path,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(settings, model, _ADAPTER)


@contextmanager
def without_adapter(model: PreTrainedModel) -> Iterator[None]:
    """Inside the block the model computes what it did before it had its adapter."""
    from peft.tuners.tuners_utils import BaseTunerLayer  # an extra

    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Writes the adapter alone, as `peft.PeftModel.from_pretrained(base_model, folder)` reads it."""
    from peft import get_peft_model_state_dict  # an extra
    from peft.utils import SAFETENSORS_WEIGHTS_NAME
    from safetensors.torch import save_file  # beside the only function that needs it

    folder.mkdir(parents=True, exist_ok=True)
    weights = get_peft_model_state_dict(model, adapter_name=_ADAPTER)
    stored = {f"base_model.model.{name}": tensor.contiguous().cpu() for name, tensor in weights.items()}
    save_file(stored, folder / SAFETENSORS_WEIGHTS_NAME, metadata={"format": "pt"})
    model.peft_config[_ADAPTER].save_pretrained(folder)
