"""Several named scorers as one: weights, gates, and the verdicts joined.

Knows nothing of what its parts judge or of configuration. The rules, chosen so that whether a sample is
judged never depends on the completion unless our own machinery broke:

- a part matters when its weight is not 0 or a paid part is gated on it; the others are only seen in logs;
- a part that matters and FAILED makes the whole FAILED;
- a part that ABSTAINED is left out of the sum, and so is a part gated on it; when every paid part is left
  out, the whole ABSTAINED. Parts abstain because of the problem, so the completions of one problem are all
  summed over the same parts;
- a part whose gate did not pass (raw value <= 0) keeps its score and is paid at weight 0;
- steps are passed on from the only part that has any, as they are paid: left out where the part is, and worth
  0 each where its gate did not pass. Weights do not scale them: whoever pays steps compares them with others.

Of a scored whole it holds that `value` is the sum of weight times value over its scored parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rewards.errors import ConfigError, EngineError
from rewards.options import suggest
from rewards.scorer import Scorer
from rewards.types import Part, Reason, Sample, Score, StepScore, Verdict


@dataclass(frozen=True, slots=True)
class Component:
    """One scorer of a mix. gate names the component that must have passed before this one is paid."""

    weight: float
    scorer: Scorer
    gate: str | None = None


@dataclass(frozen=True, slots=True)
class Composite:
    """A scorer made of named components; see the module for the rules."""

    components: Mapping[str, Component]

    def __post_init__(self) -> None:
        weights = {name: component.weight for name, component in self.components.items()}
        gates = {name: component.gate for name, component in self.components.items()}
        problems = mix_problems(weights, gates)
        if problems:
            raise ConfigError("\n".join(problems))

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Scores every sample with every component and joins the results."""
        columns = {name: self._score_part(name, samples) for name in self.components}
        return [
            self._join({name: column[row] for name, column in columns.items()}) for row in range(len(samples))
        ]

    def _score_part(self, name: str, samples: Sequence[Sample]) -> list[Score]:
        scores = self.components[name].scorer.score(samples)
        if len(scores) != len(samples):
            raise EngineError(f"reward component '{name}': {len(scores)} scores for {len(samples)} samples")
        return [_finite(score) for score in scores]

    def _join(self, scores: Mapping[str, Score]) -> Score:
        failed = [
            name for name, score in scores.items() if score.verdict is Verdict.FAILED and self._matters(name)
        ]
        left_out = [name for name in scores if self._is_left_out(name, scores)]
        gated = [name for name in scores if name not in left_out and not self._is_gate_open(name, scores)]
        parts = tuple(
            Part(name, 0.0 if name in gated else self.components[name].weight, score)
            for name, score in scores.items()
        )
        told = {"failed": failed, "abstained": left_out, "gated": gated}
        notes = {key: ",".join(names) for key, names in told.items() if names}
        version = ",".join(score.version for score in scores.values() if score.version)
        if failed:
            return Score(Verdict.FAILED, None, Reason.PART_FAILED, parts=parts, version=version, notes=notes)
        paid = [part for part in parts if part.name not in left_out]
        if all(self.components[part.name].weight == 0 for part in paid):
            return Score(
                Verdict.ABSTAINED, None, Reason.PART_ABSTAINED, parts=parts, version=version, notes=notes
            )
        # fsum rounds once, so that the order in which the components are named changes no bit.
        value = math.fsum(part.weight * part.score.value for part in paid if part.score.value is not None)
        stepped = [steps for name in scores if (steps := self._paid_steps(name, scores))]
        return Score(
            Verdict.SCORED,
            value,
            _reason(scores, left_out, gated),
            steps=stepped[0] if len(stepped) == 1 else (),
            parts=parts,
            version=version,
            notes=notes,
        )

    def _matters(self, name: str) -> bool:
        return any(
            component.weight != 0 and name in (own_name, component.gate)
            for own_name, component in self.components.items()
        )

    def _is_left_out(self, name: str, scores: Mapping[str, Score]) -> bool:
        gate = self.components[name].gate
        deciding = [scores[name]] if gate is None else [scores[name], scores[gate]]
        return any(score.verdict is Verdict.ABSTAINED for score in deciding)

    def _paid_steps(self, name: str, scores: Mapping[str, Score]) -> tuple[StepScore, ...]:
        gate = self.components[name].gate
        deciding = [scores[name]] if gate is None else [scores[name], scores[gate]]
        if any(score.value is None for score in deciding):
            return ()
        steps = scores[name].steps
        return steps if self._is_gate_open(name, scores) else tuple(replace(s, value=0.0) for s in steps)

    def _is_gate_open(self, name: str, scores: Mapping[str, Score]) -> bool:
        gate = self.components[name].gate
        if gate is None:
            return True
        value = scores[gate].value
        return value is not None and value > 0


def mix_problems(weights: Mapping[str, float], gates: Mapping[str, str | None]) -> list[str]:
    """One line for everything that is wrong with a mix; empty when it can be paid."""
    if not weights:
        return ["reward: no component; name one or more, e.g. reward=verifiable"]
    problems = [
        f"reward.components.{name}.weight={weight}: expected a finite number"
        for name, weight in weights.items()
        if not math.isfinite(weight)
    ]
    if all(weight == 0 for weight in weights.values()):
        problems.append("reward: every weight is 0, nothing would be paid; give one component a weight")
    for name, gate in gates.items():
        if gate is not None and (gate not in gates or gate == name):
            others = [other for other in gates if other != name]
            problems.append(
                f"reward.components.{name}.gate={gate}: expected the name of another component "
                f"({', '.join(others) or 'there is none'}) or null{suggest(gate, others)}"
            )
    return problems


def _finite(score: Score) -> Score:
    # A scorer that returns NaN or infinity is broken; one such value would spoil its whole group.
    if score.value is None or math.isfinite(score.value):
        return score
    return Score.failed(Reason.INTERNAL, version=score.version, notes={"value": str(score.value)})


def _reason(scores: Mapping[str, Score], left_out: Sequence[str], gated: Sequence[str]) -> Reason:
    if len(scores) == 1:
        return next(iter(scores.values())).reason
    if left_out:
        return Reason.PART_ABSTAINED
    return Reason.GATED if gated else Reason.COMBINED
