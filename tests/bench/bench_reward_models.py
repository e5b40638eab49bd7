"""Scores a second and memory of reward models on real outputs, against what people write first.

    python tests/bench/bench_reward_models.py [OUTPUTS]

Reads model_outputs from the shared data (PLUMBLINE_SHARED), every k-th of all files, 256 by default; one
thread. The models are random Llamas (4 layers of width 256) with a tokenizer trained on the outputs: a
sequence classifier, and a token classifier read behind each line. Each way runs in a process of its own: ours
(rewards.models.engine), the naive loop (batches of 16 in the order of the file, padded to the longest), and
transformers' text-classification pipeline at the same batch size. All read the same texts, cut to 1,024
tokens; their scores must agree.

96 outputs on a busy two-core machine, scores a second of processor time and MB more at the peak: the
sequence classifier 15.1 and 22, naive 7.0 and 576, the pipeline 7.4 and 397; steps 16.1 and 23, naive 7.3 and
609. What is won is the padding, and batches of 1,024 tokens that stay in the caches: with 8,192 it is 1.7
times the naive loop.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from real_outputs import read_outputs
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    PreTrainedTokenizerFast,
    pipeline,
)

from rewards.models.conventions import Convention, save_convention
from rewards.models.engine import reward_model
from rewards.models.settings import ModelSettings
from rewards.models.truncation import Request

BATCH, MAX_TOKENS, VOCABULARY = 16, 1024, 8192
STEPS = 40
PLAIN = Convention(kind="outcome", layout="plain", after_question="\n", read_at="end")
STEPWISE = Convention(
    kind="process",
    layout="plain",
    after_question="\n",
    tag="\n",
    tokenise="alone",
    head="classes",
    activation="softmax",
)


def make_model(folder: Path, texts: list[str]) -> None:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = ["<pad>", "<eos>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY, initial_alphabet=alphabet, special_tokens=special, show_progress=False
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>", pad_token="<pad>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=MAX_TOKENS,
        num_labels=1,
        pad_token_id=0,
    )
    LlamaForSequenceClassification(config).save_pretrained(folder)
    save_convention(folder, PLAIN)
    steps = folder / "prm"
    config.num_labels = 2
    LlamaForTokenClassification(config).save_pretrained(steps)
    tokenizer.save_pretrained(steps)
    save_convention(steps, STEPWISE)


def rows_that_fit(folder: Path, count: int) -> list[tuple[str, str]]:
    """Questions and completions, evenly spread, cut so that every way reads the same tokens."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    outputs = read_outputs()
    rows: list[tuple[str, str]] = []
    for output in outputs[:: max(1, len(outputs) // count)][:count]:
        question, text = output.problem.strip(), output.completion.strip()[:20_000]
        room = MAX_TOKENS - len(tokenizer(question + "\n")["input_ids"]) - 2 * STEPS
        offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        end = offsets[max(1, room) - 1][1] if len(offsets) > room else len(text)
        rows.append((question, text[:end].strip() or "none"))
    return rows


def ours(folder: Path, rows: list[tuple[str, str]]) -> Callable[[], list[float]]:
    model = reward_model(ModelSettings(path=str(folder), device="cpu"))
    return lambda: [judged.values[0] for judged in model.judge([Request(q, (text,)) for q, text in rows])]


def naive(folder: Path, rows: list[tuple[str, str]]) -> Callable[[], list[float]]:
    model = LlamaForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)

    def score() -> list[float]:
        scores: list[float] = []
        for start in range(0, len(rows), BATCH):
            texts = [f"{question}\n{text}" for question, text in rows[start : start + BATCH]]
            batch = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
            with torch.no_grad():
                scores += model(**batch).logits[:, 0].tolist()
        return scores

    return score


def piped(folder: Path, rows: list[tuple[str, str]]) -> Callable[[], list[float]]:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    classify = pipeline("text-classification", model=str(folder), tokenizer=tokenizer, device="cpu")
    texts = [f"{question}\n{text}" for question, text in rows]
    return lambda: [found["score"] for found in classify(texts, batch_size=BATCH, function_to_apply="none")]


def cut_at_newlines(question: str, text: str) -> Request:
    """At most as many steps as there is room for their tags."""
    lines = text.splitlines(keepends=True)
    return Request(question, (*lines[:STEPS], "".join(lines[STEPS:])) if lines[STEPS:] else tuple(lines))


def our_steps(folder: Path, rows: list[tuple[str, str]]) -> Callable[[], list[float]]:
    model = reward_model(ModelSettings(path=str(folder / "prm"), device="cpu"))
    requests = [cut_at_newlines(*row) for row in rows]
    return lambda: [sum(judged.values) / len(judged.values) for judged in model.judge(requests)]


def naive_steps(folder: Path, rows: list[tuple[str, str]]) -> Callable[[], list[float]]:
    """Pieces tokenised one by one, batches in the order of the file, probabilities at every token."""
    model = LlamaForTokenClassification.from_pretrained(folder / "prm").eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "prm")
    requests = [cut_at_newlines(*row) for row in rows]

    def pieces(request: Request) -> tuple[list[int], list[int]]:
        ids, ends = tokenizer(request.question + "\n")["input_ids"], []
        for step in request.steps:
            ids = ids + tokenizer(step.strip())["input_ids"] + tokenizer("\n")["input_ids"]
            ends.append(len(ids) - 1)
        return ids, ends

    def score() -> list[float]:
        scores: list[float] = []
        for start in range(0, len(requests), BATCH):
            inputs = [pieces(request) for request in requests[start : start + BATCH]]
            batch = tokenizer.pad({"input_ids": [ids for ids, _ in inputs]}, return_tensors="pt")
            with torch.no_grad():
                shares = model(**batch).logits.softmax(dim=-1)[..., 1]
            scores += [shares[place, ends].mean().item() for place, (_, ends) in enumerate(inputs)]
        return scores

    return score


WAYS = {
    "ours": ours,
    "naive": naive,
    "pipeline": piped,
    "ours, steps": our_steps,
    "naive, steps": naive_steps,
}


def measure(way: str, folder: Path) -> None:
    """In a process of its own: prints seconds, extra peak memory and the scores as one JSON line."""
    rows = [tuple(row) for row in json.loads((folder / "rows.json").read_text())]
    score = WAYS[way](folder, rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, processor = time.perf_counter(), time.process_time()
    scores = score()
    seconds, used = time.perf_counter() - start, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"s": seconds, "mb": (peak - before) / 1024, "scores": scores, "cpu": used}))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(folder, [output.completion for output in read_outputs()[::20]])
        rows = rows_that_fit(folder, count)
        (folder / "rows.json").write_text(json.dumps(rows))
        found = {}
        for way in WAYS:
            command = [sys.executable, __file__, "--measure", way, name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[way] = json.loads(done.stdout.splitlines()[-1])
    for way, result in found.items():
        exact = torch.tensor(found["naive, steps" if "steps" in way else "naive"]["scores"])
        off = (torch.tensor(result["scores"]) - exact).abs().max().item()
        print(
            f"{way:12} {len(rows) / result['s']:7.2f} scores/s  {len(rows) / result['cpu']:7.2f} a second of "
            f"processor  {result['mb']:5.0f} MB more at the peak  differs by {off:.1e}"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "--measure" in sys.argv:
        measure(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
