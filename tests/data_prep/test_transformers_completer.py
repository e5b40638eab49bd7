"""Completions by generate: keyed, independent of the batch, drawn from the model's own distribution."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from fakes import SPEC, TOKENIZER, llama, problem
from transformers import GenerationConfig

from data_prep.transformers_completer import (
    GenerationSettings,
    KeyedSampling,
    TransformersCompleter,
    uniforms,
)
from rewards.completer import Continuation, Request
from rewards.errors import ConfigError, DataError
from rewards.labelled import ProcessExample, read_labelled
from rewards.models.settings import ModelSettings

PROBLEM = problem("12+34=")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose checkpoint asks for greedy, repetition-shy sampling of its own."""
    path = tmp_path_factory.mktemp("model")
    model = llama()
    model.generation_config = GenerationConfig(  # pyright: ignore
        eos_token_id=1, pad_token_id=0, top_k=1, repetition_penalty=5.0, do_sample=True
    )
    model.save_pretrained(path)
    TOKENIZER.save_pretrained(path)
    return path


def completer(
    folder: Path, max_tokens: int = 12, temperature: float = 1.0, rows: int = 8
) -> TransformersCompleter:
    options = GenerationSettings(max_tokens=max_tokens, temperature=temperature, rows=rows)
    return TransformersCompleter(ModelSettings(path=str(folder), device="cpu"), SPEC, options)


def request(prefix: str, number: int = 1, key: str = "k", prefill: str = "") -> Request:
    return Request(PROBLEM, prefix, number, key, prefill)


def test_a_continuation_depends_on_its_key_and_prefix_alone(folder: Path) -> None:
    writes = completer(folder)
    asked = [request("1", 3, "a"), request("<think>2+4=6,", 2, "b"), request("", 1, "c")]
    together = writes.complete(asked)
    assert [len(answers) for answers in together] == [3, 2, 1]
    assert writes.complete(asked[::-1])[::-1] == together
    assert [writes.complete([one])[0] for one in asked] == together
    assert completer(folder, rows=1).complete(asked) == together
    assert len({one.text for one in together[0]}) == 3
    assert writes.complete([request("1", 3, "other")])[0] != together[0]
    # more of the same key begins with the same ones
    assert writes.complete([request("1", 5, "a")])[0][:3] == together[0]


def test_the_library_s_random_state_is_neither_read_nor_moved(folder: Path) -> None:
    writes = completer(folder)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = writes.complete([request("1", 2)])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert writes.complete([request("1", 2)]) == first


def test_first_tokens_follow_the_model_s_distribution(folder: Path) -> None:
    temperature, draws = 2.0, 3000
    writes = completer(folder, max_tokens=1, temperature=temperature, rows=draws)
    (answers,) = writes.complete([request("<think>2+", draws)])
    seen = Counter(one.text if not one.truncated or one.text else "" for one in answers)
    ids = TOKENIZER("12+34=<think>2+", add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = llama()(ids).logits[0, -1]
    chances = torch.softmax(logits.double() / temperature, dim=0)
    top = chances.topk(5)
    for token, chance in zip(top.indices.tolist(), top.values.tolist(), strict=True):
        text = "" if token == 1 else str(TOKENIZER.decode([token]))
        # four standard deviations of a share
        assert seen[text] / draws == pytest.approx(chance, abs=4 * (chance * (1 - chance) / draws) ** 0.5)
    assert len(seen) > 5  # top_k=1 of the checkpoint is not in force


def test_a_text_ends_with_its_stop_token_or_is_truncated(folder: Path) -> None:
    (answers,) = completer(folder, max_tokens=6, temperature=3.0).complete([request("1", 64)])
    for one in answers:
        assert "<eos>" not in one.text
        assert one.truncated == (
            len(TOKENIZER(one.text, add_special_tokens=False)["input_ids"]) == one.tokens
        )
        assert one.tokens <= 6
    assert {one.truncated for one in answers} == {True, False}


def test_a_prefix_is_gone_on_from_as_if_the_model_had_written_it(folder: Path) -> None:
    writes = completer(folder)
    # the same ids whether the tag was written by the template, the prefill or the prefix
    assert writes.complete([request("<think>2")]) == writes.complete([request("2", prefill="<think>")])
    # a space at the end is left to the next token, and not doubled when texts are joined
    plain, spaced = writes.complete([request("2"), request("2 ")])
    (bare,), (one,) = plain, spaced
    assert one == Continuation(bare.text.removeprefix(" "), bare.tokens, bare.truncated)


def test_a_prefix_that_does_not_fit_is_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"problem 'p-12\+34=': a prefix of 506 tokens and max_tokens=12"):
        completer(folder).complete([request("1" * 500)])


def test_prompts_without_a_chat_template_are_plain_text(folder: Path, tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    plain = completer(tmp_path)
    assert plain.prefill_of(PROBLEM) == ""
    assert len(plain.complete([request("1")])[0]) == 1
    assert plain.complete([request("1")]) != completer(folder).complete([request("1")])


def test_a_uniform_number_falls_on_the_token_whose_share_holds_it() -> None:
    # shares 0.2, 0.5, 0, 0.3
    scores = torch.tensor([[0.2, 0.5, 0.0, 0.3]]).log().repeat(5, 1)
    draws = torch.tensor([[0.0], [0.19], [0.21], [0.7001], [1 - 2**-53]], dtype=torch.float64)
    left = KeyedSampling(draws, 3, 1.0)(torch.zeros((5, 3), dtype=torch.long), scores)
    assert left.argmax(dim=1).tolist() == [0, 0, 1, 3, 3]
    assert torch.isfinite(left).sum(dim=1).tolist() == [1] * 5


def test_uniform_numbers_depend_on_the_key() -> None:
    assert torch.equal(uniforms("a", 4), uniforms("a", 9)[:4])
    assert not torch.equal(uniforms("a", 4), uniforms("b", 4))
    assert uniforms("a", 10_000).mean().item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("options", [(0, 1.0, 1), (1, 0.0, 1), (1, 1.0, 0)])
def test_impossible_sampling_is_refused(options: tuple[int, float, int]) -> None:
    max_tokens, temperature, rows = options
    with pytest.raises(ConfigError, match="expected"):
        GenerationSettings(max_tokens=max_tokens, temperature=temperature, rows=rows)


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json in it"):
        completer(tmp_path)


def test_the_command_labels_problems_with_a_model(folder: Path, tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "prompt": f"1{n}+34=", "gold": str(44 + n)} for n in range(2)]
    rows.append({"id": "c", "prompt": "1+1=", "gold": "2", "completion": "<think>1+1=2</think>\\boxed{2}"})
    source, output = tmp_path / "problems.jsonl", tmp_path / "labels.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["completions=2", "max_tokens=8", f"model={folder}", "solutions=2", "part=2", "method=soft"]
    command = [sys.executable, "-m", "data_prep.run", "dataset=step_labels", f"source={source}"]
    command += [f"output={output}", *(f"step_labels.{option}" for option in options)]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert "going on" in done.stdout
    examples = read_labelled(output)
    (example,) = (example for example in examples if example.id == "c#3")
    assert isinstance(example, ProcessExample)
    assert example.steps == ("<think>1+1=2</think>", "\\boxed{2}")
    assert example.labels[-1] == 1.0
