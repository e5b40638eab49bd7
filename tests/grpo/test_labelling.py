"""Judged completions become examples; the policy writes on from their prefixes for the labels of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fakes import SPEC, TOKENIZER, RuleScorer, policy, problem

from grpo.labelling import Judged, OutcomeLabeller, StepLabeller
from grpo.rollout.completing import LocalCompleter
from grpo.rollout.local import LocalEngine
from rewards.completer import Continuation, Request
from rewards.errors import EngineError
from rewards.labelled import OutcomeExample, ProcessExample
from rewards.step_estimates import StepLabelSettings
from rewards.types import Sample

TEXT = "<think>1+1=2;2+2=4</think>4"


def completer(max_tokens: int = 12, decode_rows: int = 64) -> LocalCompleter:
    return LocalCompleter(
        LocalEngine(policy(), TOKENIZER, decode_rows=decode_rows), TOKENIZER, SPEC, max_tokens
    )


def request(prefix: str = "<think>1", number: int = 3, key: str = "k") -> Request:
    return Request(problem(), prefix, number, key)


def test_a_continuation_depends_on_its_key_and_prefix_alone() -> None:
    asked = [request(), request(key="other"), request("<think>12", 2), request(number=2)]
    found = completer().complete(asked)
    assert [len(answer) for answer in found] == [3, 3, 2, 2]
    assert found[0] != found[1]
    assert len({answer.text for answer in found[0]}) > 1
    assert completer(decode_rows=2).complete(asked[::-1]) == found[::-1]
    assert completer().complete([asked[2]]) == [found[2]]
    assert found[3] == found[0][:2]


def test_prefix_and_continuation_keep_the_limit_of_a_completion() -> None:
    (whole,), (short,), (none,) = completer(8).complete(
        [request("1", 1), request("1234567", 1), request("123456789", 1)]
    )
    assert whole.tokens <= 7
    assert short.tokens == 1
    assert short.truncated or short.text == ""
    assert none == Continuation("", 0, truncated=True)


def test_a_solution_begun_by_another_template_is_refused() -> None:
    with pytest.raises(EngineError, match="label it with the model that wrote it"):
        completer().complete([replace(request(), prefill="<think>")])


def test_outcomes_carry_the_verdict_and_the_whole_turn() -> None:
    sample = Sample(problem(), "7</think>3", prefill="<think>")
    (example,) = OutcomeLabeller().label([Judged(sample, True)], "round/3")
    assert example == OutcomeExample("1+2=", "<think>7</think>3", 1.0, "round/3")


class Scripted:
    """Solves what does not hold a false equation; notes the prefixes."""

    def __init__(self) -> None:
        self.prefixes: list[str] = []

    def complete(self, requests: Sequence[Request]) -> list[list[Continuation]]:
        self.prefixes += [one.prefix for one in requests]
        texts = ["</think>9" if "2+2=5" in one.prefix else "</think>4" for one in requests]
        return [[Continuation(text, 3)] * one.number for text, one in zip(texts, requests, strict=True)]


def test_steps_are_labelled_by_what_the_policy_still_solves() -> None:
    script = Scripted()
    judge = RuleScorer(lambda sample: float(sample.text.endswith("4")))
    settings = StepLabelSettings(method="soft", completions=2)
    labeller = StepLabeller(script, judge, settings, SPEC, "semicolon")
    wrong = TEXT.replace("2+2=4</think>4", "2+2=5</think>5")
    judged = [
        Judged(Sample(problem(), TEXT), True),
        Judged(Sample(problem(), wrong), False),
        Judged(Sample(problem(), ""), False),
    ]
    examples = labeller.label(judged, "round/0")
    assert [example.steps for example in examples if isinstance(example, ProcessExample)] == [
        ("<think>1+1=2;", "2+2=4</think>", "4"),
        ("<think>1+1=2;", "2+2=5</think>", "5"),
    ]
    assert [example.labels for example in examples if isinstance(example, ProcessExample)] == [
        (1.0, 1.0, 1.0),
        (1.0, 0.0, 0.0),
    ]
    assert [prefix.removeprefix("<think>1+1=2;") for prefix in script.prefixes] == [
        "",
        "2+2=4</think>",
        "",
        "2+2=5</think>",
    ]
    (opened,) = labeller.label([Judged(Sample(problem(), TEXT[7:], prefill="<think>"), True)], "round/0")
    assert isinstance(opened, ProcessExample)
    assert opened.steps[0] == "<think>1+1=2;"
