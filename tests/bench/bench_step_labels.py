"""Do Monte-Carlo step labels find the wrong steps, where the right labels are known?

    python tests/bench/bench_step_labels.py
    python tests/bench/bench_step_labels.py solutions=64 seed=1 data.slip_rate=0.2

The embedded model, cold-started on sums of four-digit numbers whose teacher now and then forgets a carry,
solves held-out sums; each column is a step, and the rule-based checker of rewards.verifiers.arithmetic_steps
knows which equations are false. A step counts as right while no equation up to it is false. Completions are
written by the same model, through the completer of data_prep, at temperature 1.

Agreement is over all steps but the answer; `first error` is the share of wrong solutions, with a false
equation, in which exactly that step is the first one labelled 0 (soft: below 0.5). `AUC` is that of the share
of right completions as a score for right steps. Other arguments are overrides of conf/train.yaml.

128 sums, coldstart.steps=700, one thread: 35 % solved; 499 steps, 129 of them wrong, so that calling every
step right agrees on 74 %. Hard labels agree on 64, 76, 83, 86, 88 % at K = 1, 2, 4, 8, 16 and find the first
error in 15, 38, 57, 69, 77 %: a weak policy fails after right steps, and many completions are needed to see
that they can be saved. The binary search agrees on 88, 88, 89 % at K = 4, 8, 16 with 5, 9, 15 completions a
solution instead of 12, 17, 27. At K = 4 a later success is the better repair (87 %), a first failure the
worse one (78 %); at 16 it is the other way round (87, 90 %), since by then zeros are mostly deserved. Soft
labels rank well (AUC 0.88, 0.90, 0.92) but a threshold of 0.5 is too high for a policy that is right on a
third of its own attempts (69, 65, 64 %).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import torch
from rich.console import Console
from rich.table import Table

from data_prep.transformers_completer import GenerationSettings, TransformersCompleter
from grpo.coldstart import ColdStartSettings, cold_start, demonstrate
from grpo.config import TRAIN, TrainConfig, cold_start_hash
from grpo.materials import gather_materials
from grpo.rollout.local import pad_id
from rewards.completer import Request
from rewards.format import FormatSpec
from rewards.models.settings import ModelSettings
from rewards.prepared import cache_folder
from rewards.protocols.discrimination import auc
from rewards.step_estimates import Method, Repair, StepLabelSettings
from rewards.step_labels import label_steps
from rewards.step_solutions import LabelledSolution, Solution
from rewards.types import Problem, Sample
from rewards.verifiers.accuracy import AccuracyVerifier
from rewards.verifiers.arithmetic_steps import find_equations, thought_span

OVERRIDES = ("reward=verifiable+format", "device=cpu", "data.max_operand=9999", "data.slip_rate=0.3")
MAX_TOKENS = 90
VARIANTS: Sequence[tuple[Method, int, Repair]] = (
    *(("hard", k, "none") for k in (1, 2, 4, 8, 16)),
    *(("hard", k, "later_success") for k in (4, 16)),
    *(("hard", k, "first_failure") for k in (4, 16)),
    *(("soft", k, "none") for k in (4, 8, 16)),
    *(("first_error", k, "none") for k in (4, 8, 16)),
)


@dataclass(frozen=True)
class Known:
    """A solution cut at its equations, and what is true of each of its steps but the answer."""

    solution: Solution
    truth: tuple[bool, ...]

    @property
    def first_false(self) -> int | None:
        return self.truth.index(False) if False in self.truth else None


def make_policy(config: TrainConfig, folder: Path) -> tuple[FormatSpec, Sequence[Problem]]:
    """Writes the cold-started policy to the folder; returns its format and the held-out problems."""
    materials = gather_materials(config)
    policy, tokenizer, spec = materials.policy, materials.tokenizer, materials.spec
    start = config.coldstart
    cold_start(
        policy,
        (demonstrate(problem, tokenizer, spec) for problem in materials.data.coldstart),
        ColdStartSettings(start.steps, start.batch_size, start.learning_rate, config.seed),
        pad=pad_id(tokenizer),
        cache=cache_folder() / "coldstart" / cold_start_hash(config),
        report=lambda step, loss: None,
    )
    policy.model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return spec, materials.data.evaluation


def solve(completer: TransformersCompleter, problems: Sequence[Problem], spec: FormatSpec) -> list[Known]:
    """One solution a problem, where it has an equation and an end."""
    written = completer.complete([Request(problem, "", 1, f"solve/{problem.id}") for problem in problems])
    known: list[Known] = []
    for problem, (one,) in zip(problems, written, strict=True):
        equations = find_equations(one.text, *thought_span(one.text, spec))
        if one.truncated or not equations or equations[-1].end == len(one.text):
            continue
        edges = [0, *(equation.end for equation in equations), len(one.text)]
        steps = tuple(one.text[a:b] for a, b in pairwise(edges))
        truth = tuple(all(e.true for e in equations[: n + 1]) for n in range(len(equations)))
        known.append(Known(Solution(Sample(problem, one.text), steps, problem.id), truth))
    return known


def row(
    method: Method, k: int, repair: Repair, known: Sequence[Known], found: Sequence[LabelledSolution]
) -> list[str]:
    values = [[e.value or 0.0 for e in one.estimates[:-1]] for one in found]
    passed = [[value >= 0.5 for value in own] for own in values]
    pairs = [
        (p, t) for own, one in zip(passed, known, strict=True) for p, t in zip(own, one.truth, strict=True)
    ]
    false = [p for p, t in pairs if not t]
    wrong = [(own, one) for own, one in zip(passed, known, strict=True) if one.first_false is not None]
    exact = fmean((own.index(False) if False in own else None) == one.first_false for own, one in wrong)
    shares = [value for own in values for value in own]
    return [
        method,
        str(k),
        repair,
        f"{fmean(p == t for p, t in pairs):.3f}",
        f"{fmean(p for p, t in pairs if t):.3f}",
        f"{fmean(not p for p in false):.3f}",
        f"{exact:.3f}",
        f"{auc(shares, [t for _, t in pairs]) or 0:.3f}" if method == "soft" else "",
        f"{fmean(one.completions for one in found):.1f}",
        f"{fmean(one.tokens for one in found):.0f}",
        f"{sum(one.violations for one in found)}",
    ]


def main(arguments: Sequence[str]) -> None:
    own = dict(a.split("=", 1) for a in arguments if a.startswith(("solutions=", "seed=")))
    count, seed = int(own.get("solutions", "128")), int(own.get("seed", "0"))
    overrides = [a for a in arguments if a.split("=", 1)[0] not in own]
    torch.set_num_threads(1)
    console = Console(width=140)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec, problems = make_policy(TRAIN.load([*OVERRIDES, *overrides]), folder)
        options = GenerationSettings(max_tokens=MAX_TOKENS, temperature=1.0, rows=256)
        completer = TransformersCompleter(ModelSettings(path=str(folder), device="cpu"), spec, options)
        known = solve(completer, problems[:count], spec)
        verifier = AccuracyVerifier(spec)
        right = [score.value == 1.0 for score in verifier.score([one.solution.sample for one in known])]
        console.print(
            f"{len(known)} solutions of {count} problems, {fmean(right):.1%} right; "
            f"{sum(len(one.truth) for one in known)} steps, "
            f"{sum(one.truth.count(False) for one in known)} wrong "
            f"in {sum(one.first_false is not None for one in known)} solutions; calling every step right "
            f"agrees on {fmean(t for one in known for t in one.truth):.3f}"
        )
        columns = ("method", "K", "repair", "agree", "right found", "wrong found", "first error", "AUC")
        table = Table(*columns, "completions", "tokens", "violations", title="labels against the truth")
        for method, k, repair in VARIANTS:
            started = time.process_time()
            settings = StepLabelSettings(
                method=method, completions=k, wave=min(k, 2), repair=repair, seed=seed
            )
            found = label_steps([one.solution for one in known], completer, verifier, settings)
            table.add_row(*row(method, k, repair, known, found))
            print(f"{method} {k} {repair}: {time.process_time() - started:.0f} s", file=sys.stderr)
        console.print(table)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main(sys.argv[1:])
