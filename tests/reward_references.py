"""Each public reward model as its authors score with it: one text at a time, slow, ids searched for.

Independent of rewards/models on purpose: built from transformers' whole models and the checkpoint's tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from tiny_reward_models import tokenizer
from torch import Tensor
from transformers import (
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
)

TOKENIZER = tokenizer()
REASON = "Please reason step by step, and put your final answer within \\boxed{}."


def encode(text: str) -> list[int]:
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def chat(*turns: tuple[str, str]) -> str:
    messages = [{"role": role, "content": content} for role, content in turns]
    return str(TOKENIZER.apply_chat_template(messages, tokenize=False))


@torch.no_grad()
def hidden_states(folder: Path, ids: list[int]) -> Tensor:
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    return model(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0]


@torch.no_grad()
def logits(model_class: type, folder: Path, ids: list[int]) -> Tensor:
    return model_class.from_pretrained(folder).eval()(torch.tensor([ids])).logits[0]


def qwen_prm(folder: Path, question: str, steps: Sequence[str]) -> list[float]:
    reply = "<extra_0>".join(steps) + "<extra_0>"
    ids = encode(chat(("system", REASON), ("user", question), ("assistant", reply)))
    tensors = load_file(folder / "model.safetensors")
    inner = (hidden_states(folder, ids) @ tensors["score.0.weight"].T + tensors["score.0.bias"]).relu()
    scores = (inner @ tensors["score.2.weight"].T + tensors["score.2.bias"]).softmax(-1)
    tag = TOKENIZER.convert_tokens_to_ids("<extra_0>")
    return [scores[place, 1].item() for place, token in enumerate(ids) if token == tag]


def math_shepherd(folder: Path, question: str, steps: Sequence[str]) -> list[float]:
    output = "\n".join(f"Step {n}: {step} ки" for n, step in enumerate(steps, start=1))
    ids = [TOKENIZER.bos_token_id, *encode(f"{question} {output}")]
    plus, minus, tag = (encode(text)[-1] for text in ("+", "-", " ки"))
    scores = logits(LlamaForCausalLM, folder, ids)[:, [plus, minus]].softmax(-1)
    return [scores[place, 0].item() for place, token in enumerate(ids) if token == tag]


def rlhflow(folder: Path, question: str, steps: Sequence[str]) -> list[float]:
    turns: list[tuple[str, str]] = []
    values: list[float] = []
    plus, minus = encode("+")[-1], encode("-")[-1]
    for place, step in enumerate(steps):
        turns += [("user", step if place else f"{question} {step}"), ("assistant", "+")]
        ids = encode(chat(*turns))
        last = max(place for place, token in enumerate(ids) if token == plus)
        values.append(logits(LlamaForCausalLM, folder, ids)[last - 1, [plus, minus]].softmax(-1)[0].item())
    return values


def skywork_prm(folder: Path, question: str, steps: Sequence[str]) -> list[float]:
    ids = [TOKENIZER.bos_token_id, *encode(question + "\n")]
    ends: list[int] = []
    for step in steps:
        ids += [*encode(step), *encode("\n")]
        ends.append(len(ids) - 1)
    tensors = load_file(folder / "model.safetensors")
    scores = hidden_states(folder, ids) @ tensors["v_head.summary.weight"].T + tensors["v_head.summary.bias"]
    return scores[ends, 0].sigmoid().tolist()


def separated(folder: Path, prompt: list[int], steps: Sequence[str], separator: str) -> Tensor:
    ids = list(prompt)
    ends: list[int] = []
    for step in steps:
        ids += [*encode(step), *encode(separator)]
        ends.append(len(ids) - 1)
    return logits(LlamaForTokenClassification, folder, ids)[ends].softmax(-1)


def trl_prm(folder: Path, question: str, steps: Sequence[str]) -> list[float]:
    return separated(folder, [TOKENIZER.bos_token_id, *encode(question)], steps, "\n")[:, 1].tolist()


def pure_prm(folder: Path, question: str, steps: Sequence[str]) -> list[float]:
    scores = separated(folder, encode(question + "\n"), steps, "\n\n")
    return (scores[:, 1] - scores[:, 0]).tolist()


def implicit_prm(folder: Path, question: str, steps: Sequence[str]) -> list[float]:
    text = chat(("user", question), ("assistant", "\n\n".join(steps)))
    encoded = TOKENIZER(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = encoded["input_ids"]
    ratios = [
        logits(LlamaForCausalLM, place, ids).double().log_softmax(-1)
        for place in (folder, folder / "reference")
    ]
    begin = text.index("assistant\n") + len("assistant\n")
    values: list[float] = []
    for step in steps:
        end = text.index(step, begin) + len(step)
        total = 0.0
        for place, (start, _) in enumerate(encoded["offset_mapping"]):
            if begin <= start < end:
                total += (ratios[0][place - 1, ids[place]] - ratios[1][place - 1, ids[place]]).item()
        values.append(torch.tensor(0.001 * total).sigmoid().item())
        begin = end
    return values


def classifier(text: Callable[[str, str], str]) -> Callable[[Path, str, Sequence[str]], list[float]]:
    def score(folder: Path, question: str, steps: Sequence[str]) -> list[float]:
        ids = encode(text(question, steps[0]))
        return logits(LlamaForSequenceClassification, folder, ids).tolist()

    return score


REFERENCES: Mapping[str, Callable[[Path, str, Sequence[str]], list[float]]] = {
    "qwen2.5-math-prm": qwen_prm,
    "math-shepherd": math_shepherd,
    "rlhflow-prm": rlhflow,
    "rlhflow-orm": rlhflow,
    "skywork-o1-prm": skywork_prm,
    "skywork-reward": classifier(lambda q, a: chat(("user", q), ("assistant", a))),
    "qwen2.5-math-rm": classifier(lambda q, a: chat(("system", REASON), ("user", q), ("assistant", a))),
    "sequence-classifier": classifier(lambda q, a: f"<s>{q}\n{a}<|im_end|>"),
    "trl-prm": trl_prm,
    "pure-prm": pure_prm,
    "implicit-prm": implicit_prm,
}
"""(folder, question, the steps or the one completion) -> values."""
