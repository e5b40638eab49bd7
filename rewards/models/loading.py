"""A path -> the files of a model, its tokenizer, and weights that are all the checkpoint's own.

The one place that calls transformers' loaders, whose types say little. Knows nothing of heads or conventions.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import huggingface_hub
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from rewards.errors import ConfigError
from rewards.models.products import use_fast_products
from rewards.models.settings import ModelSettings

DTYPES: Mapping[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_TEXT_FILES = ["*.json", "*.jinja", "*.txt", "*.model"]
_SCALED_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
_LOADERS: Mapping[str, Any] = {"backbone": AutoModel, "causal": AutoModelForCausalLM}


def local_folder(path: str, setting: str = "model.path") -> Path:
    """The folder of a model: the path itself, or the hub's files, downloaded once.

    Raises:
        ConfigError: when there is neither, naming the setting.
    """
    folder = Path(path)
    if (folder / "config.json").exists():
        return folder
    if folder.exists():
        raise ConfigError(f"{setting}={path}: no config.json in it; expected a saved transformers model")
    hub: Any = huggingface_hub
    try:
        found = Path(hub.snapshot_download(path, allow_patterns=[*_TEXT_FILES, "*.safetensors"]))
        if not list(found.glob("*.safetensors")):
            found = Path(hub.snapshot_download(path, allow_patterns=[*_TEXT_FILES, "*.bin"]))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{setting}={path}: neither a folder here nor to be had from the hub ({_first_line(error)})"
        ) from error
    return found


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The reward model's own tokenizer.

    Raises:
        ConfigError: when the folder has none.
    """
    loader: Any = AutoTokenizer
    try:
        return loader.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder}: its tokenizer cannot be loaded ({_first_line(error)}); a reward model needs its own "
            "tokenizer files beside the weights"
        ) from error


def load_weights(
    kind: Literal["backbone", "causal"], folder: Path, settings: ModelSettings, device: torch.device
) -> PreTrainedModel:
    """A model in eval mode with every weight from the checkpoint; `backbone` is one without any head.

    Raises:
        ConfigError: when it cannot be loaded, or weights are missing.
    """
    configs: Any = AutoConfig
    try:
        config = configs.from_pretrained(folder)
        capped = config.to_dict().get("attn_logit_softcapping") is not None
        switch_dropout_off(config)
        with quiet():
            model, report = _LOADERS[kind].from_pretrained(
                folder,
                config=config,
                dtype=DTYPES[settings.dtype],
                attn_implementation=settings.attention or ("eager" if capped else None),
                output_loading_info=True,
            )
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise ConfigError(f"{folder}: its weights cannot be loaded ({_first_line(error)})") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ConfigError(
            f"{folder}: {len(missing)} weights are not in the checkpoint and would be random "
            f"({', '.join(missing[:3])}): expected the reward model's own, whole checkpoint; an adapter is "
            "merged into its base model first"
        )
    use_fast_products(model)
    return model.eval().to(device)


def switch_dropout_off(config: Any) -> None:
    """Also in training: one text has one value."""
    for name, value in config.to_dict().items():
        if isinstance(value, float) and ("dropout" in name or name.endswith("pdrop")):
            setattr(config, name, 0.0)


@contextmanager
def quiet(*, progress: bool = False) -> Generator[None]:
    """transformers says nothing below an error and, but for `progress`, shows no bars.

    It would report a head that a backbone does not take; whether weights are missing is our own check.
    """
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if not progress:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def settings_of(model: PreTrainedModel) -> Mapping[str, Any]:
    """The model's configuration as plain values, of its language part where it has several."""
    untyped: Any = model
    return untyped.config.get_text_config().to_dict()


def output_embedding(model: PreTrainedModel) -> nn.Linear:
    """The layer from hidden states to logits.

    Raises:
        ConfigError: where the logits are more than that layer's output.
    """
    untyped: Any = model
    output = untyped.get_output_embeddings()
    config = settings_of(model)
    scaled = [name for name in _SCALED_LOGITS if config.get(name) not in (None, 1)]
    if not isinstance(output, nn.Linear) or scaled:
        raise ConfigError(
            f"{type(model).__name__}: its logits are not its output embedding applied to hidden states "
            f"({', '.join(scaled) or 'no linear layer'}): conventions with head=vocabulary or log_ratio need "
            "a model where they are"
        )
    return output


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
