"""Probes: what they are, in every layout, and what the verifiers make of them."""

import pytest
from fakes import RuleScorer

from grpo.probes import DEGENERATE, HONEST, SHORTCUT, ask, make_probes, pays_for, probe_metric
from rewards.format import FormatSpec
from rewards.types import Problem
from rewards.verifiers.accuracy import AccuracyVerifier

WORKED = Problem("w", "37+45=", ("82",), "number", meta={"thought": "7+5=12,c1;3+4+1=8", "answer": "82"})
SLIPPED = Problem("s", "37+45=", ("82",), "number", meta={"thought": "7+5=12;3+4=7", "answer": "72"})
PLAIN = Problem("p", "What is 6*7?", ("42",), "number")
NO_GOLD = Problem("n", "Why?", ())
SPEC = FormatSpec()


@pytest.mark.parametrize("style", ["free", "boxed", "tags"])
def test_the_verifier_pays_honest_work_and_the_answer_alone(style: str) -> None:
    spec = FormatSpec(answer_style=style)  # pyright: ignore[reportArgumentType]
    earned = ask(make_probes([WORKED, PLAIN], spec, "", count=2, seed=0), AccuracyVerifier(spec))
    assert earned.keys() == {probe_metric(kind) for kind in (HONEST, SHORTCUT, *DEGENERATE)}
    assert {name for name, mean in earned.items() if mean > 0} == {
        probe_metric(HONEST),
        probe_metric(SHORTCUT),
    }
    assert pays_for(earned) == []


def test_work_is_taken_from_examples_that_reach_their_gold() -> None:
    probes = make_probes([SLIPPED, PLAIN, WORKED], SPEC, "", count=3, seed=0)
    assert {probe.sample.problem.id for probe in probes} == {"w"}
    honest, wrong = (
        next(p.sample.text for p in probes if p.kind == kind) for kind in (HONEST, "wrong_answer")
    )
    assert honest == "<think>7+5=12,c1;3+4+1=8</think>82"
    assert wrong.startswith("<think>7+5=12,c1;3+4+1=8</think>")
    assert wrong != honest


def test_the_prefill_of_the_template_is_not_written_twice() -> None:
    for probe in make_probes([PLAIN], SPEC, "<think>", count=1, seed=0):
        assert probe.sample.prefill == "<think>"
        assert not probe.sample.text.startswith("<think>")


def test_a_seed_fixes_them() -> None:
    problems = [Problem(str(n), f"{n}+1=", (str(n + 1),), "number") for n in range(40)]
    first, again, other = (make_probes(problems, SPEC, "", count=3, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert len({probe.sample.problem.id for probe in first}) == 3


def test_problems_that_cannot_be_judged_make_no_probes() -> None:
    assert make_probes([NO_GOLD], SPEC, "", count=2, seed=0) == ()
    assert make_probes([PLAIN], SPEC, "", count=0, seed=0) == ()


def test_what_cannot_be_scored_is_left_out() -> None:
    probes = make_probes([PLAIN], SPEC, "", count=1, seed=0)
    earned = ask(probes, RuleScorer(lambda sample: None if sample.text == "{" else float(len(sample.text))))
    assert probe_metric("brace") not in earned
    assert pays_for(earned) == ["repetition", "wrong_answer"]  # a reward that likes long texts
    assert pays_for({probe_metric("empty"): 1.0}) == []
