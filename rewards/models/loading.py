"""A path -> the files of a model, its tokenizer, and weights that are all the checkpoint's own.

The one place that calls transformers' loaders, whose types say little. Knows nothing of heads or conventions.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import huggingface_hub
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers import __version__ as transformers_version
from transformers.utils import logging

from rewards.errors import ConfigError
from rewards.models.products import use_fast_products
from rewards.models.settings import ModelSettings

DTYPES: Mapping[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_TEXT_FILES = ["*.json", "*.jinja", "*.txt", "*.model"]
_LAYER_WEIGHT = re.compile(r"\.\d+\..*\.weight$")  # of a transformer's numbered layers, not of a head
DAMAGES = (
    *(OSError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, EOFError),
    *(RuntimeError, ImportError, pickle.UnpicklingError, SafetensorError, StrictDataclassError),
)
"""What libraries raise for files that are damaged or say what cannot be: whatever their reading runs into."""
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
    _load_config(folder)  # which the loader reads, and would blame on the tokenizer
    try:
        with _PlainAsValueError():
            tokenizer = loader.from_pretrained(folder)
            tokenizer("text")  # some settings are read only now
            return tokenizer
    except DAMAGES as error:
        raise ConfigError(
            f"{folder}: its tokenizer cannot be loaded from tokenizer.json and tokenizer_config.json "
            f"({_first_line(error)}); a reward model needs its own tokenizer files beside the weights: copy "
            "them again where they are damaged"
        ) from error


def load_weights(
    kind: Literal["backbone", "causal"], folder: Path, settings: ModelSettings, device: torch.device
) -> PreTrainedModel:
    """A model in eval mode with every weight from the checkpoint; `backbone` is one without any head.

    Raises:
        ConfigError: when it cannot be loaded, or weights are missing.
    """
    for _ in open_tensors(folder):
        pass  # names a damaged file, which transformers does not
    try:
        config = _load_config(folder)
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
    except DAMAGES as error:
        raise ConfigError(
            f"{folder}: its weights cannot be loaded as config.json describes them ({_first_line(error)}): "
            "expected both as they were saved; copy them again where they are damaged"
        ) from error
    _check_whole(folder, report)
    use_fast_products(model)
    return model.eval().to(device)


def open_tensors(folder: Path) -> Iterator[tuple[Path, Any]]:
    """The *.safetensors of a folder, each open while it is the current one.

    Raises:
        ConfigError: naming one that is damaged.
    """
    opening: Any = safe_open  # the library tells no types
    for file in sorted(folder.glob("*.safetensors")):
        try:
            tensors = opening(file, framework="pt")
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"{file}: is damaged ({_first_line(error)}): copy or download it again, whole"
            ) from error
        with tensors:
            yield file, tensors


def _load_config(folder: Path) -> Any:
    configs: Any = AutoConfig
    try:
        return configs.from_pretrained(folder)
    except DAMAGES as error:
        raise ConfigError(
            f"{folder / 'config.json'}: describes no model that transformers {transformers_version} can load "
            f"({' '.join(str(error).split())[:200]}): expected the file that the weights were saved with"
        ) from error


def _check_whole(folder: Path, report: Mapping[str, Any]) -> None:
    """Model and checkpoint have the same weights; only heads may be in the checkpoint alone."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise ConfigError(
            f"{folder}: {len(missing)} weights are not in the checkpoint and would be random "
            f"({', '.join(missing[:3])}): expected the reward model's own, whole checkpoint; an adapter is "
            "merged into its base model first"
        )
    unused = sorted(key for key in report["unexpected_keys"] if _LAYER_WEIGHT.search(key))
    if unused:
        raise ConfigError(
            f"{folder}: {len(unused)} weights of the checkpoint have no place in the model that config.json "
            f"describes ({', '.join(unused[:3])}): expected the config.json that they were saved with"
        )


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


def embedding_rows(models: Sequence[PreTrainedModel]) -> int:
    """Token ids below this have a row of the input embedding in each of the models."""
    untyped: Sequence[Any] = models
    return min(int(model.get_input_embeddings().weight.shape[0]) for model in untyped)


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


class _PlainAsValueError:
    """Inside, what the tokenizers library cannot parse is a ValueError: it raises Exception itself."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is Exception:
            raise ValueError(str(error)) from error


def _first_line(error: Exception) -> str:
    said = (str(error).splitlines() or [""])[0]
    told = said if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: {said}"
    return told or type(error).__name__
