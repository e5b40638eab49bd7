r"""Judges completions: scorers, their results, and two short ways to them.

    import rewards
    rewards.verify(gold="1/2", prediction=r"so the answer is \boxed{0.5}").value   # 1.0
    scorer = rewards.load_scorer("verifiable+format")
    scorer.score([rewards.Sample(rewards.Problem("p", "1+1=", ("2",)), r"<think>1+1=2</think>It is 2.")])

Importing it loads the standard library only: what a call needs beyond that is imported by the call.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewards.errors import ConfigError, DataError, EngineError, RewardError
from rewards.scorer import Scorer, StepScorer
from rewards.types import AnswerType, Part, Problem, Reason, Sample, Score, StepScore, Verdict

__all__ = [
    "AnswerType",
    "ConfigError",
    "DataError",
    "EngineError",
    "Part",
    "Problem",
    "Reason",
    "RewardError",
    "Sample",
    "Score",
    "Scorer",
    "StepScore",
    "StepScorer",
    "Verdict",
    "load_scorer",
    "verify",
]


def load_scorer(reward: str, *overrides: str) -> Scorer:
    """The scorer that `reward=...` names on a command line.

    Args:
        reward: a name in conf/reward, or several joined by plus signs: "verifiable+format".
        overrides: as on a command line, such as "format=answer_tags" or
            "reward.components.format.weight=0.1".

    Raises:
        ConfigError: for an unknown name or setting, with the nearest valid one.
    """
    from rewards.build import build_scorer  # loads Hydra, which `import rewards` must not
    from rewards.config import SCORER

    return build_scorer(SCORER.load([f"reward={reward}", *overrides]).reward)


def verify(
    *, gold: str | float | Sequence[str | float] | None, prediction: str, answer_type: AnswerType = "auto"
) -> Score:
    """Whether the answer that a text gives equals the gold answer: value 1.0 or 0.0, with the reason.

    Args:
        gold: the gold answer, text or number; several are all required. None or an empty one makes the score
            abstain.
        prediction: any text that ends in an answer; a thought in <think> tags is optional and not searched.
        answer_type: what kind of answer the gold is; "auto" reads it from the gold.

    Raises:
        TypeError: for a gold or a prediction of another type.
    """
    # What `import rewards` need not load.
    from rewards.format import FormatSpec
    from rewards.records import gold_texts
    from rewards.verifiers.accuracy import AccuracyVerifier

    golds = gold_texts(gold)
    if golds is None:
        raise TypeError(f"verify: gold={gold!r}: expected a string, a number, a list of these or None")
    if not isinstance(prediction, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"verify: prediction={prediction!r}: expected a string")
    sample = Sample(Problem("verify", "", golds, answer_type), prediction)
    return AccuracyVerifier(format=FormatSpec(mode="optional", answer_style="free")).score([sample])[0]
