"""Checkpoints that are whole or not there: weights, optimiser, scheduler, random states and counters.

Knows files and their order; nothing of models or of when a checkpoint is due. A folder `step_000010/` is
written as `.writing-step_000010/`, synced and renamed, so a kill at any moment leaves every earlier
checkpoint and no half one. Files hold tensors and plain values only (read with weights_only), beside them
`state.json` with the format's version and the size of every file. With a model's own config and tokenizer
written by `TrainState.extra`, the folder is also one that `from_pretrained` loads.

Save the metrics before the checkpoint that covers them: `MetricsWriter` syncs each line, so calling it first
is enough. Restore random states last, and seed nothing after that.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rewards.durable import sync, sync_tree, write_json
from rewards.errors import ConfigError, EngineError

FORMAT = 3
"""Version of the layout below; a checkpoint of another version is refused, not guessed at."""

_WEIGHTS, _TRAINING, _STATE = "model.safetensors", "training.pt", "state.json"
_TIED = "tied"


@dataclass(frozen=True, slots=True)
class TrainState:
    """Everything a run needs to go on.

    weights: a module's state_dict; tied tensors are stored once. optimizer, scheduler, rng: state dicts of
    tensors and plain values. critic: the same of a value model, empty without one. reference: a module's
    state_dict, empty where it is what the run started from. counters: json values (versions, ...). score:
    what keep-best compares, higher is better; None where the step was not evaluated. extra: write further
    files into the folder they are given, such as `tokenizer.save_pretrained`.
    """

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]
    scheduler: Mapping[str, Any]
    rng: Mapping[str, Any]
    critic: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reference: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    counters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    score: float | None = None
    extra: tuple[Callable[[Path], object], ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """A checkpoint read back, all tensors on the CPU. notes: what was found and removed, for people."""

    path: Path
    step: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    scheduler: dict[str, Any]
    rng: dict[str, Any]
    critic: dict[str, Any]
    reference: dict[str, Tensor]
    counters: dict[str, Any]
    notes: tuple[str, ...]


def save(directory: Path, step: int, state: TrainState) -> Path:
    """Writes `directory/step_<step>` whole and returns its path.

    A step that is there already is left as it is: the same step of the same run has the same content.

    Raises:
        EngineError: the disk has no room for it; nothing was written.
    """
    final = directory / f"step_{step:06d}"
    if final.exists():
        return final
    directory.mkdir(parents=True, exist_ok=True)
    _check_room(directory, state)
    beside = directory / f".writing-{final.name}"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    for write in state.extra:
        write(beside)
    _save_weights(state.weights, beside / _WEIGHTS)
    training = {
        "optimizer": state.optimizer,
        "scheduler": state.scheduler,
        "rng": state.rng,
        "critic": state.critic,
        "reference": state.reference,
    }
    torch.save({name: dict(part) for name, part in training.items()}, beside / _TRAINING)
    content = {"format": FORMAT, "step": step, "score": state.score, "counters": dict(state.counters)}
    write_json(beside / _STATE, content | {"files": _sizes(beside)})
    sync_tree(beside)
    os.rename(beside, final)
    sync(directory)
    return final


def load_latest(directory: Path) -> LoadedCheckpoint | None:
    """Reads the newest checkpoint, or returns None where there is none; removes what a kill left half done.

    Raises:
        EngineError: the newest checkpoint is damaged or of another format. Older ones are not tried in
            silence: the message says how to go on from them.
    """
    notes = [f"removed {path.name}, left unfinished by a stop" for path in _remove_leftovers(directory)]
    steps = list_steps(directory)
    if not steps:
        return None
    path = steps[max(steps)]
    state = _read_state(path)
    try:
        weights = _load_weights(path / _WEIGHTS)
        training = torch.load(path / _TRAINING, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise _damaged(path, str(error)) from error
    notes.append(f"{path.name}: going on after step {state['step']}")
    return LoadedCheckpoint(
        path=path,
        step=state["step"],
        weights=weights,
        optimizer=training["optimizer"],
        scheduler=training["scheduler"],
        rng=training["rng"],
        critic=training["critic"],
        reference=training["reference"],
        counters=state["counters"],
        notes=tuple(notes),
    )


def prune(directory: Path, keep_last: int, keep_best: int = 0) -> list[Path]:
    """Deletes all but the newest `keep_last` and the `keep_best` of highest score; returns what went.

    Among equal scores the earlier step counts as better. Call it after `save`: what was just written is whole
    by then, and the newest is never deleted.

    Raises:
        ConfigError: keep_last < 1 or keep_best < 0.
    """
    if keep_last < 1 or keep_best < 0:
        raise ConfigError(
            f"keep_last={keep_last}, keep_best={keep_best}: expected keep_last >= 1 (the newest is what a "
            "stopped run goes on from) and keep_best >= 0"
        )
    steps = list_steps(directory)
    scores = {step: _read_state(path)["score"] for step, path in steps.items()} if keep_best else {}
    ranked = sorted((-score, step) for step, score in scores.items() if score is not None)
    kept = set(sorted(steps)[-keep_last:]) | {step for _, step in ranked[:keep_best]}
    removed = [path for step, path in sorted(steps.items()) if step not in kept]
    for path in removed:
        doomed = path.with_name(f".deleting-{path.name}")
        os.rename(path, doomed)  # one step: a kill never leaves half a checkpoint under its own name
        shutil.rmtree(doomed)
    return removed


def list_steps(directory: Path) -> dict[int, Path]:
    """The whole checkpoints of a directory: step -> folder."""
    return {int(path.name.removeprefix("step_")): path for path in directory.glob("step_*") if path.is_dir()}


def capture_rng() -> dict[str, Any]:
    """The global random states of Python, NumPy, torch and every CUDA device, as tensors and plain values."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = cast(tuple[str, Any, int, int, float], np.random.get_state())
    return {
        "python": {"version": version, "words": list(words), "gauss": gauss},
        "numpy": {
            "name": name,
            "keys": torch.from_numpy(keys.astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_rng(state: Mapping[str, Any]) -> None:
    """Puts back what `capture_rng` took.

    Raises:
        EngineError: the states are of another number of CUDA devices than there are here.
    """
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if len(state["cuda"]) != devices:
        raise EngineError(
            f"the checkpoint holds random states of {len(state['cuda'])} CUDA devices and there are "
            f"{devices}: resume on the same number (CUDA_VISIBLE_DEVICES), or start anew with resume=never"
        )
    python, numpy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"]), python["gauss"]))
    keys = numpy["keys"].numpy().astype(np.uint32)
    np.random.set_state((numpy["name"], keys, numpy["position"], numpy["has_gauss"], numpy["cached"]))
    torch.set_rng_state(state["torch"])
    if devices:
        torch.cuda.set_rng_state_all(state["cuda"])


def _save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """safetensors refuses tensors that share memory: a tied one is stored once, under the name seen first."""
    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    names: dict[tuple[object, ...], str] = {}
    storages: set[tuple[torch.device, int]] = set()
    for name, tensor in weights.items():
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        first = names.setdefault(place, name) if tensor.numel() else name
        if first != name:
            tied[name] = first
            continue
        storage = (tensor.device, tensor.untyped_storage().data_ptr())
        whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        alone = whole and storage not in storages
        stored[name] = (tensor.detach() if alone else tensor.detach().clone()).contiguous()
        storages.add(storage)
    save_file(stored, path, metadata={"format": "pt", _TIED: json.dumps(tied)})


def _load_weights(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt", device="cpu") as file:
        weights: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        tied: dict[str, str] = json.loads(file.metadata()[_TIED])
    return weights | {name: weights[first] for name, first in tied.items()}


def _read_state(path: Path) -> dict[str, Any]:
    """state.json, after its format and the sizes of all files were checked."""
    try:
        state: dict[str, Any] = json.loads((path / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if state["format"] != FORMAT:
        raise EngineError(
            f"{path} has checkpoint format {state['format']}, this version reads {FORMAT}: "
            "go on with the version that wrote it, or start anew with resume=never"
        )
    found = {name: size for name, size in _sizes(path).items() if name in state["files"]}
    if found != state["files"]:
        wrong = sorted(name for name, size in state["files"].items() if found.get(name) != size)
        raise _damaged(path, f"missing or of another size: {', '.join(wrong)}")
    return state


def _damaged(path: Path, why: str) -> EngineError:
    return EngineError(
        f"checkpoint {path} is damaged ({why}): remove that folder to go on from the one before it"
    )


def _sizes(folder: Path) -> dict[str, int]:
    """Size in bytes of every file below a folder, by relative name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def _remove_leftovers(directory: Path) -> list[Path]:
    leftovers = sorted([*directory.glob(".writing-step_*"), *directory.glob(".deleting-step_*")])
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True)  # another rank may be removing it too
    return leftovers


def _check_room(directory: Path, state: TrainState) -> None:
    """Refuses before anything is written where the tensors alone would not fit."""
    needed = sum(map(_tensor_bytes, (state.weights, state.optimizer, state.critic, state.reference)))
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise EngineError(
            f"{directory}: a checkpoint needs {needed / 2**20:.0f} MiB and {free / 2**20:.0f} MiB are free; "
            "make room, then start again: the run goes on from the checkpoint before"
        )


def _tensor_bytes(state: object) -> int:
    """Bytes of all tensors in nested mappings and lists."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, Mapping):
        return sum(_tensor_bytes(value) for value in state.values())
    if isinstance(state, list | tuple):
        return sum(_tensor_bytes(value) for value in state)
    return 0
