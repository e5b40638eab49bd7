"""The contract of rewards/scorer.py, over every conf/reward/*.yaml and hostile texts.

A new reward is tested by existing. One that cannot be built without being told something (`???` in its yaml,
such as a model's path) says in tests/reward_needs.py what it is given here. Values that a model computes
depend on their batch by the rounding of fp32, and are compared to 1e-5; all others bit for bit.
"""

import asyncio
import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from reward_needs import LEARNED, reward_overrides

import conf
import rewards
from rewards.composite import Composite
from rewards.scorer import gives_steps
from rewards.types import Problem, Reason, Sample, Score, Verdict

REWARDS = sorted(path.stem for path in (Path(conf.__file__).parent / "reward").glob("*.yaml"))
MEGABYTE = 1 << 20

PROBLEMS = (
    Problem("number", "6*7=", ("42",)),
    Problem("fraction", "Half of one?", ("\\frac{1}{2}",), meta={"level": "1"}),
    Problem("choice", "Which? (A) one (B) two", ("B",), "choice"),
    Problem("several", "Both roots of x^2=4?", ("2", "-2")),
    Problem("hard", "Simplify.", ("\\sqrt{2}+\\sqrt{3}",), "expression"),
)
WITHOUT_GOLD = (Problem("none", "6*7="), Problem("blank", "6*7=", ("   ",)))

SHORT = {
    "empty": "",
    "white space": " \n\t\r\n ",
    "right": "<think>6*7=42</think>\\boxed{42}",
    "wrong": "<think>6*7=41</think>\\boxed{41}",
    "answer only": "42",
    "sentence": "<think>half</think>The answer is 0.5.",
    "letter": "<think>B, surely</think>\\boxed{B}",
    "NUL": "<think>a\0b</think>\\boxed{4\0002}",
    "lone high surrogate": "<think>\ud800</think>\\boxed{42\ud800}",
    "lone low surrogate": "\udfff<think>x</think>\\boxed{\udfff}",
    "astral and combining": "<think>𝟒𝟐 é\u0301\u0301</think>\\boxed{𝟒𝟐}",
    "right to left and zero width": "\u202e<think>\u200b</think>\u2066\\boxed{\u200b42}",
    "control codes": "\x1b[31m<think>\x07\x08</think>\\boxed{42}\x1b]0;x\x07",
    "markup": "<script>alert(1)</script><think>[bold]x[/bold]</think>\\boxed{42}",
    "unclosed thought": "<think>6*7=42 \\boxed{42}",
    "only a close": "</think>",
    "tags inside out": "</think>x<think>\\boxed{42}",
    "two thoughts": "<think>a</think><think>b</think>\\boxed{42}",
    "unbalanced box": "<think>x</think>\\boxed{42",
    "empty box": "<think>x</think>\\boxed{}",
    "end of turn": "<think>x</think>\\boxed{42}<|im_end|><|endoftext|>",
    "backslash at the end": "<think>x</think>\\boxed{42}\\",
    "percent and braces": "%s %d {0} {} \\boxed{%}",
    "python": "<think>x</think>\\boxed{__import__('os').system('true')}",
    "power tower": "<think>x</think>\\boxed{9^{9^{9^{9^{9}}}}}",
    "factorials": "<think>x</think>\\boxed{99999!!!}",
    "not a number": "<think>x</think>\\boxed{\\text{NaN}}",
    "infinity": "<think>x</think>\\boxed{1e999}",
    "division by zero": "<think>1/0=1/0</think>\\boxed{\\frac{1}{0}}",
    "another form of the hard one": "<think>x</think>\\boxed{\\sqrt{5+2\\sqrt{6}}}",
}
LONG = {
    "a megabyte of text": "a" * MEGABYTE,
    "a megabyte of digits": "<think>x</think>\\boxed{" + "7" * MEGABYTE + "}",
    "ten thousand digits": "<think>x</think>\\boxed{" + "7" * 10_000 + "}",
    "ten thousand boxes": "<think>x</think>" + "\\boxed{42}" * 10_000,
    "ten thousand different boxes": "<think>x</think>" + "".join(f"\\boxed{{{n}}}" for n in range(10_000)),
    "fifty nested tags": "<think>" * 50 + "x" + "</think>" * 50 + "\\boxed{42}",
    "fifty nested boxes": "<think>x</think>" + "\\boxed{" * 50 + "42" + "}" * 50,
    "five thousand open braces": "<think>x</think>\\boxed{" + "{" * 5_000,
    "five thousand open brackets": "<think>x</think>\\boxed{" + "(" * 5_000 + "1" + ")" * 5_000 + "}",
    "nested fractions": "<think>x</think>\\boxed{" + "\\frac{1}{" * 2_000 + "2" + "}" * 2_000 + "}",
    "a megabyte of opening tags": "<think>" * (MEGABYTE // 7),
    "a hundred thousand equations": "<think>" + "1+1=2;" * 100_000 + "</think>\\boxed{42}",
    "a sum of five thousand terms": "<think>" + "+".join(["1"] * 5_000) + "=5000</think>\\boxed{42}",
    "five thousand equals signs": "<think>" + "1=" * 5_000 + "1</think>\\boxed{42}",
    "five thousand superscripts": "<think>x</think>\\boxed{" + "x^" * 5_000 + "2}",
    "a hundred thousand lines": "<think>\n" + "\n" * 100_000 + "x</think>\\boxed{42}",
    "a hundred thousand backslashes": "<think>x</think>" + "\\" * 100_000,
    "a hundred thousand dollars": "<think>x</think>" + "$" * 100_000,
}
"""Long texts meet the first problem only: what they are about is size."""


def short_samples() -> list[Sample]:
    texts = list(SHORT.values())
    samples = [
        Sample(problem, text, group=group, index=index)
        for group, problem in enumerate((*PROBLEMS, *WITHOUT_GOLD))
        for index, text in enumerate(texts)
    ]
    opened = [Sample(PROBLEMS[0], text.removeprefix("<think>"), prefill="<think>\n") for text in texts]
    cut_off = [Sample(PROBLEMS[0], text, truncated=True) for text in texts]
    return [*samples, *opened, *cut_off]


def is_whole(score: Score, sample: Sample) -> None:
    """Asserts what holds of every score."""
    assert (score.value is None) == (score.verdict is not Verdict.SCORED)
    assert score.value is None or math.isfinite(score.value)
    assert isinstance(score.reason, Reason)
    assert all(0 <= step.start <= step.end <= len(sample.text) for step in score.steps)
    assert all(math.isfinite(step.value) for step in score.steps)
    assert all(len(text) < 10_000 for text in score.notes.values())
    for part in score.parts:
        is_whole(part.score, sample)


def assert_same(left: list[Score], right: list[Score]) -> None:
    """Equal scores; those of learned components up to rounding."""
    assert list(map(bare, left)) == list(map(bare, right))
    for one, other in zip(left, right, strict=True):
        assert learned_values(one) == pytest.approx(learned_values(other), rel=0, abs=1e-5)


def is_learned(score: Score) -> bool:
    return any(part.name in LEARNED for part in score.parts)


def bare(score: Score) -> Score:
    """The score; without the values that a model computed, where there are any."""
    if not is_learned(score):
        return score
    parts = tuple(
        replace(part, score=without_values(part.score)) if part.name in LEARNED else part
        for part in score.parts
    )
    return replace(without_values(score), parts=parts)


def without_values(score: Score) -> Score:
    steps = tuple(replace(step, value=0.0) for step in score.steps)
    return replace(score, value=None if score.value is None else 0.0, steps=steps)


def learned_values(score: Score) -> list[float]:
    if not is_learned(score):
        return []
    scores = [score, *(part.score for part in score.parts if part.name in LEARNED)]
    values = [one.value for one in scores if one.value is not None]
    return [*values, *(step.value for one in scores for step in one.steps)]


@pytest.fixture(scope="module", params=REWARDS)
def scorer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Composite:
    needs = reward_overrides(request.param, tmp_path_factory.mktemp(request.param))
    loaded = rewards.load_scorer(request.param, *needs)
    assert isinstance(loaded, Composite)
    return loaded


@pytest.fixture(scope="module")
def scores(scorer: Composite) -> list[Score]:
    return scorer.score(short_samples())


def test_every_text_gets_a_whole_score_and_none_is_our_failure(
    scorer: Composite, scores: list[Score]
) -> None:
    samples = short_samples()
    assert len(scores) == len(samples)
    for sample, score in zip(samples, scores, strict=True):
        is_whole(score, sample)
        assert score.verdict is not Verdict.FAILED, (sample.text, score)


@pytest.mark.parametrize("name", LONG)
def test_a_text_of_any_size_gets_a_score(scorer: Composite, name: str) -> None:
    sample = Sample(PROBLEMS[0], LONG[name])
    (score,) = scorer.score([sample])
    is_whole(score, sample)
    assert score.verdict is not Verdict.FAILED, score


def test_a_scorer_says_whether_it_gives_steps(scorer: Composite, scores: list[Score]) -> None:
    for place, component in enumerate(scorer.components.values()):
        given = any(score.parts[place].score.steps for score in scores)
        assert gives_steps(component.scorer) == given


def test_nothing_in_gives_nothing_out(scorer: Composite) -> None:
    assert scorer.score([]) == []
    for component in scorer.components.values():
        assert component.scorer.score([]) == []


def test_a_batch_equals_its_samples_one_by_one(scorer: Composite, scores: list[Score]) -> None:
    alone = [scorer.score([sample])[0] for sample in short_samples()]
    assert_same(alone, scores)


def test_scores_follow_their_samples_in_any_order_and_repeat(scorer: Composite, scores: list[Score]) -> None:
    samples = short_samples()
    assert_same(scorer.score(samples[::-1]), scores[::-1])
    assert_same(scorer.score((*samples[:3], *samples[:3])), [*scores[:3], *scores[:3]])


def test_samples_are_not_changed(scorer: Composite) -> None:
    samples = short_samples()
    before = copy.deepcopy(samples)
    scorer.score(samples)
    assert samples == before


def test_survives_pickle_and_so_do_its_scores(scorer: Composite, scores: list[Score]) -> None:
    again = pickle.loads(pickle.dumps(scorer))
    assert_same(again.score(short_samples()), scores)
    assert pickle.loads(pickle.dumps(scores)) == scores


def test_works_from_any_thread(scorer: Composite, scores: list[Score]) -> None:
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(scorer.score, [short_samples()] * 4))
    for result in results:
        assert_same(result, scores)


def test_works_under_asyncio(scorer: Composite, scores: list[Score]) -> None:
    async def both() -> list[list[Score]]:
        off_the_loop = asyncio.to_thread(scorer.score, short_samples())
        return [await off_the_loop, scorer.score(short_samples())]

    for result in asyncio.run(both()):
        assert_same(result, scores)


def test_building_it_again_gives_the_same_scores(scorer: Composite, scores: list[Score]) -> None:
    assert_same(Composite(dict(scorer.components)).score(short_samples()), scores)


def test_abstaining_depends_on_the_problem_alone(scorer: Composite) -> None:
    for problem in (*PROBLEMS, *WITHOUT_GOLD):
        found = scorer.score([Sample(problem, text) for text in SHORT.values()])
        assert len({score.verdict for score in found}) == 1, problem.id
        for place in range(len(scorer.components)):
            assert len({score.parts[place].score.verdict for score in found}) == 1, problem.id


def test_parts_carry_a_version_and_the_right_names(scorer: Composite, scores: list[Score]) -> None:
    for score in scores:
        assert [part.name for part in score.parts] == list(scorer.components)
        assert all(part.score.version for part in score.parts)
