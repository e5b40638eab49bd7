"""Every name a metrics line may hold, with one line on what it is. No computation.

`<component>` is a scorer's name in the reward mix, `<reason>` a code of `rewards.types.Reason`, `<set>` an
evaluation set, `<k>` a number, `<phase>` a phase of the step, `<probe>` a kind of `grpo.probes`, `<alarm>`
one of `grpo.alarms`. Means are over one step. A mean over nothing is left out of the line, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

METRICS: dict[str, str] = {
    "reward": "mean reward over the scored completions of the step (weighted sum of the components)",
    "reward_std": "standard deviation (n - 1) of the reward within a group, mean over groups",
    "reward/p10": "tenth percentile of the reward over the batch",
    "reward/p90": "ninetieth percentile of the reward over the batch",
    "reward/<component>/mean": "mean value of a component, unweighted, where it was scored",
    "reward/<component>/std": "standard deviation of a component's value within a group, mean over groups",
    "verdict/total/scored": "share of completions with a reward",
    "verdict/total/abstained": "share of completions whose problem cannot be judged: in no gradient",
    "verdict/total/failed": "share of completions lost to our own machinery: in no gradient",
    "verdict/<component>/scored": "share of completions the component judged",
    "verdict/<component>/abstained": "share the component cannot judge because of the problem",
    "verdict/<component>/failed": "share the component lost through our own fault",
    "reason/<component>/<reason>": "share of completions the component gave this reason",
    "reward/kl": "divergence from the reference summed over a completion, mean, where it is in the reward",
    "reward/kl_charge": "what the KL in the reward took from a completion, on average",
    "reward/kl_coefficient": "weight of that KL in this step, where it adapts to a target",
    "rollout/extra_rounds": "rounds of dynamic sampling beyond the first",
    "rollout/groups_sampled": "groups sampled for the step, those replaced included",
    "frac_reward_zero_std": "share of groups whose rewards are all equal, or fewer than two scored",
    "groups/frac_mixed": "share of groups with right and wrong completions, by the verifier",
    "groups/frac_all_good": "share of groups with only right completions",
    "groups/frac_all_bad": "share of groups with only wrong completions",
    "groups/frac_silent": "share of groups in no gradient: nothing tells their completions apart",
    "groups/duplicates": "share of completions equal in tokens to an earlier one of their group",
    "completions/mean_length": "mean length of a completion in tokens",
    "completions/min_length": "shortest completion in tokens",
    "completions/max_length": "longest completion in tokens",
    "completions/mean_terminated_length": "mean length in tokens of the completions that ended by themselves",
    "completions/min_terminated_length": "shortest completion that ended by itself",
    "completions/max_terminated_length": "longest completion that ended by itself",
    "completions/clipped_ratio": "share of completions cut off at the token limit",
    "completions/length_correct": "mean length in tokens of the right completions",
    "completions/length_wrong": "mean length in tokens of the wrong completions",
    "advantages/mean": "mean advantage of a completion, itself the mean of its tokens where they differ",
    "advantages/std": "standard deviation of the advantages over the batch",
    "advantages/min": "smallest advantage",
    "advantages/max": "largest advantage",
    "advantages/zero_frac": "share of completions in no gradient: no advantage at any token, or masked out",
    "loss": "the loss; near 0 on fresh samples, because a group's advantages add up to 0",
    "kl": "divergence from the reference policy per token, in nats, by the k3 estimator",
    "kl/k1": "the same by the k1 estimator, which can be negative",
    "kl/k2": "the same by the k2 estimator",
    "entropy": "entropy of the next-token distribution at the sampling temperature, mean over tokens, nats",
    "update/skipped": "updates left out: the gradient was not finite, or no completion had an advantage",
    "prm/steps_mean": "mean number of judged steps of a completion",
    "prm/step_reward_mean": "mean value of a judged step",
    "prm/first_bad_step": "mean index of the first step below 0.5, over completions that have one",
    "prm/unscored_token_frac": "share of completion tokens in completions without any judged step",
    "prm/advantage_length_corr": "correlation of a completion's summed advantage with its length",
    "grad_norm": "norm of the gradient before clipping",
    "learning_rate": "learning rate of this update",
    "critic/loss": "loss of the value model: half the squared distance from the returns, by its row weights",
    "critic/grad_norm": "norm of the value model's gradient before clipping",
    "critic/skipped": "updates of the value model left out: gradient not finite, or nothing to learn from",
    "critic/value_mean": "mean value of a token before the value model learned from the step",
    "critic/return_mean": "mean return of a token: what its value should have been",
    "critic/explained_variance": "share of the variance of the returns that the values foresaw; 1 is all",
    "clip_ratio/low_mean": "share of tokens held back because their ratio fell below 1 - epsilon",
    "clip_ratio/high_mean": "share of tokens held back because their ratio rose above 1 + epsilon",
    "clip_ratio/region_mean": "share of tokens held back on either side",
    "policy/approx_kl": "divergence of the updated from the sampling policy, mean over tokens, nats (k3)",
    "policy/ratio_mean": "mean probability ratio of a token, new to sampling policy",
    "policy/ratio_max": "largest ratio",
    "sampling/sampling_logp_difference/mean": "mean distance of sampler's and trainer's log-probability",
    "sampling/sampling_logp_difference/max": "largest such distance",
    "sampling/importance_sampling_ratio/mean": "mean weight that corrects for the difference",
    "num_tokens": "completion tokens sampled since the run began",
    "eval/<set>/accuracy": "pass@1 on held-out problems: sampled at the training temperature",
    "eval/<set>/accuracy_low": "lower end of its 95 % interval",
    "eval/<set>/accuracy_high": "upper end of its 95 % interval",
    "eval/<set>/greedy": "accuracy on held-out problems when the likeliest token is always taken",
    "eval/<set>/pass@<k>": "chance that at least one of k samples is right",
    "eval/<set>/maj@<k>": "accuracy of the commonest answer of k samples",
    "eval/<set>/format": "share of held-out completions in the layout asked for",
    "eval/<set>/length": "mean length of a held-out completion in tokens",
    "eval/<set>/clipped_ratio": "share of held-out completions cut off at the token limit",
    "eval/<set>/unscored": "share of held-out completions without a verdict",
    "watch/gold": "share of right completions by the verifier, whatever is paid",
    "watch/format": "share of completions in the layout asked for, whatever is paid",
    "watch/correlation": "correlation of reward and right or wrong over the step's completions",
    "watch/auc_within": "chance that a right completion is paid more than a wrong one of the same problem",
    "watch/length_correlation": "correlation of reward and length over the step's completions",
    "watch/silent_groups": "share of groups in no gradient though not all of it is right",
    "watch/kl": "divergence from the start policy per token, in nats (k3), on some completions of the step",
    "watch/kl_completion": "the same summed over a completion, mean",
    "watch/alarm/<alarm>": "1 on the steps that raise this alarm",
    "probe/<probe>/mean": "mean reward of made-up completions, honest or degenerate, of a few fixed problems",
    "iterate/round": "number of the outer round, from 0",
    "iterate/reference_moved": "1 where the reference became the policy after the step",
    "replay/groups": "groups kept in the replay buffer, at a round's end",
    "replay/history_share": "share of completions of past rounds in what a refit was trained on",
    "refit/auc_new": "the paying reward model's AUC within held-out questions, on this round's completions",
    "refit/auc_old": "the same on completions of earlier rounds",
    "refit/auc_new_after": "the refitted model's AUC within held-out questions, on this round's completions",
    "refit/auc_old_after": "the same on completions of earlier rounds",
    "refit/accepted": "1 where the refitted reward model was taken, 0 where the old one stays",
    "refit/examples": "completions that a refit was trained on",
    "refit/drift": "mean distance between the values of fixed completions before and after a refit",
    "refit/drift_mean": "the same with its sign: above 0 the refitted model says more",
    "coldstart/loss": "cross-entropy per token of the supervised phase, at its end",
    "timing_s/<phase>": "seconds in a phase; `step` is all of rollout, scores and update",
    "perf/tokens_per_s": "completion tokens sampled a second of the whole step",
    "perf/effective_tokens_per_s": "the same, counting only completions whose advantages are in the gradient",
    "perf/peak_memory_gb": "largest memory in use on the accelerator so far, 10^9 bytes",
}

_PATTERNS = [
    re.compile(re.sub(r"<\w+>", "[^/]+", re.escape(name).replace(r"\<", "<").replace(r"\>", ">")))
    for name in METRICS
]


def unexplained(names: Iterable[str]) -> list[str]:
    """The names that no entry of METRICS covers.

    >>> unexplained(["loss", "reward/accuracy/mean", "reward/accuracy/median"])
    ['reward/accuracy/median']
    """
    return sorted(name for name in set(names) if not any(pattern.fullmatch(name) for pattern in _PATTERNS))


def is_timing(name: str) -> bool:
    """Whether a metric depends on the machine and its load: all others are equal in a run and its repeat."""
    return name.startswith(("timing_s/", "perf/"))
