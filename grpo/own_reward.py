"""The reward model of a run that was given none: fitted on completions of its policy before the first step.

The backbone is the policy as the cold start left it, read with the policy's own tokenizer; the labels are the
verifier's. What an equal run has fitted before is taken from the cache.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from grpo.collect import score_completions
from grpo.labelling import Judged, Labeller
from grpo.models import save_policy
from grpo.prompt import EncodedPrompt
from grpo.refit import Fit
from grpo.rollout.local import LocalEngine, Sampling
from rewards.errors import DataError
from rewards.models.conventions import Convention, Kind
from rewards.scorer import Scorer
from rewards.steps import Strategy


def own_convention(
    kind: Kind, tokenizer: PreTrainedTokenizerBase, *, whole_chat: bool, strategy: Strategy, step_join: str
) -> Convention:
    """How a reward model on the policy's own backbone is fed and read: as the policy reads and writes.

    An outcome is read behind the last token, a step at its own last token; values are probabilities of right.

    Args:
        kind: outcome or process.
        tokenizer: the policy's.
        whole_chat: its template writes all turns, so that question and completion can be told apart.
        strategy: how completions are cut into steps.
        step_join: what stands between steps.
    """
    layout = "chat" if whole_chat and tokenizer.chat_template is not None else "plain"
    if kind == "outcome":
        ends = layout == "plain"  # a template writes the end itself
        return Convention(
            kind="outcome", layout=layout, eos=ends, read_at="end", head="scalar", activation="sigmoid"
        )
    return Convention(
        kind="process",
        layout=layout,
        step_join=step_join,
        tokenise="alone",
        read_at="step",
        head="classes",
        activation="softmax",
        strategy=strategy,
    )


@dataclass(frozen=True, slots=True)
class OwnReward:
    """What a first fit is made from.

    Args:
        engine: samples with the policy as it is when asked.
        base: where these weights of the policy lie already, None where nowhere.
        prompts: one of each problem.
        judge: the accuracy verifier.
        labeller: completions -> examples.
        fit: trains.
        sampling: of the completions.
        is_held_out: whether a question is kept for measuring.
    """

    engine: LocalEngine
    base: str | None
    prompts: Sequence[EncodedPrompt]
    judge: Scorer
    labeller: Labeller
    fit: Fit
    sampling: Sampling
    is_held_out: Callable[[str], bool]

    def ensure(self, cache: Path) -> Path:
        """The folder of the reward model; fitted where it is not there yet, and put there whole by a rename.

        Raises:
            DataError: all completions are right, or all wrong: nothing could be learned from them.
        """
        if cache.exists():
            return cache
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{cache.name}.", dir=cache.parent))
        try:
            self._fit(partial / "policy", partial / "fitted")
            os.rename(partial / "fitted", cache)
        except OSError:
            if not cache.exists():  # an equal run was faster
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return cache

    def _fit(self, folder: Path, target: Path) -> None:
        judged = self._sample()
        right = sum(one.right for one in judged)
        if right in (0, len(judged)):
            raise DataError(
                f"the first fit of a reward model: {right} of {len(judged)} completions of the policy are "
                "right: expected right and wrong ones; raise iterate.reward_model.first.problems, or start "
                "from a policy that solves some of them"
            )
        held_out = [one for one in judged if self.is_held_out(one.sample.problem.prompt)]
        train = [one for one in judged if not self.is_held_out(one.sample.problem.prompt)]
        if self.base is None:
            save_policy(self.engine.policy, self.engine.tokenizer, folder)
        self.fit(
            self.base or str(folder),
            self.labeller.label(train, "first/train"),
            self.labeller.label(held_out, "first/heldout"),
            target,
        )

    def _sample(self) -> list[Judged]:
        """Completions with the verifier's word, none twice; those it cannot judge are left out."""
        groups = [group for batch in self.engine.generate(self.prompts, self.sampling) for group in batch]
        samples = [completion.sample for group in groups for completion in group.completions]
        judged = {
            (sample.problem.id, sample.text): Judged(sample, score.value > 0)
            for sample, score in zip(samples, score_completions(self.judge, groups), strict=True)
            if score.value is not None
        }
        return list(judged.values())
