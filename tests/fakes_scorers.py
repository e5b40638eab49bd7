"""Small scorers with intent, for the tests of what happens around scoring."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rewards.errors import ConfigError
from rewards.models.settings import ModelSettings
from rewards.types import Part, Reason, Sample, Score, StepScore, Verdict


@dataclass(frozen=True, slots=True)
class GoldInText:
    """1 where the gold stands in the text, abstains without a gold; one part, one step of half the text."""

    weight: float = 1.0

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [self._one(sample) for sample in samples]

    def _one(self, sample: Sample) -> Score:
        if not sample.problem.gold:
            part = Score.abstained(Reason.NO_GOLD)
            return Score(part.verdict, None, Reason.NO_GOLD, parts=(Part("substring", self.weight, part),))
        right = all(gold in sample.text for gold in sample.problem.gold)
        reason = Reason.MATCH_STRING if right else Reason.MISMATCH
        part = Score.scored(float(right), reason, notes={"gold": sample.problem.gold[0]})
        return Score(
            part.verdict,
            self.weight * float(right),
            Reason.COMBINED,
            parts=(Part("substring", self.weight, part),),
            steps=(StepScore(0, len(sample.text) // 2, float(right)),),
        )


@dataclass(frozen=True, slots=True)
class RaisesOn:
    """Breaks its contract: raises where the text holds the marker."""

    marker: str

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        for sample in samples:
            if self.marker in sample.text:
                raise RuntimeError(f"cannot bear {self.marker}")
        return GoldInText().score(samples)


@dataclass(frozen=True, slots=True)
class Refuses:
    """Finds out at its first call that it cannot score, as a model whose files are damaged does."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        raise ConfigError("model.safetensors: is damaged")


@dataclass(frozen=True, slots=True)
class DiesOn:
    """Ends its process, as the kernel does when memory is out, where the text holds the marker."""

    marker: str

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        if any(self.marker in sample.text for sample in samples):
            os._exit(9)
        return GoldInText().score(samples)


@dataclass(frozen=True, slots=True)
class Constant:
    """The same value for every text."""

    value: float

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [Score.scored(self.value, Reason.MODEL) for _ in samples]


@dataclass(frozen=True, slots=True)
class LikesLength:
    """Pays for a completion that ends with its gold, and too much for a long one."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [
            Score.scored(float(s.text.endswith(s.problem.gold)) + len(s.text) / 20, Reason.MODEL)
            for s in samples
        ]


@dataclass(frozen=True, slots=True)
class Careless:
    """Returns what no score can be: a note that is no text, and no score at all for every third."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        notes = cast(dict[str, str], {"answer": object()})
        bad = Score(
            Verdict.SCORED,
            1.0,
            Reason.MODEL,
            parts=(Part("p", 1.0, Score.scored(1.0, Reason.MODEL, notes=notes)),),
        )
        return [cast(Score, None) if place % 3 == 0 else bad for place, _ in enumerate(samples)]


@dataclass(frozen=True, slots=True)
class BatchSum:
    """Depends on the batch, as the last digits of a reward model do: the value is the batch's length sum."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        total = float(sum(len(sample.text) for sample in samples))
        return [Score.scored(total, Reason.MODEL) for _ in samples]


@dataclass(frozen=True, slots=True)
class Slow:
    """GoldInText that takes its time: seconds a sample."""

    seconds: float

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        time.sleep(self.seconds * len(samples))
        return GoldInText().score(samples)


@dataclass(frozen=True, slots=True)
class FolderGain:
    """A reward model that is a number in its folder: what a completion that begins with "right" is worth."""

    model: ModelSettings

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        gain = json.loads((Path(self.model.path) / "gain.json").read_text())
        return [Score.scored(gain * sample.text.startswith("right"), Reason.MODEL) for sample in samples]
