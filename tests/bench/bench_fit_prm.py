"""A process reward model from SmolLM2-135M on the PRM800K part, by ProcessBench against plain baselines.

    PYTHONPATH=tests python tests/bench/bench_fit_prm.py --folder RUN [--validate] [--bench 400] [--epochs 2]

Trained is on OpenR's multi-step rows; questions that ProcessBench asks (in the problems taken of it) are
removed, and 30 % of the others are held out by hash. On these the threshold is chosen, for the model and for
every baseline alike, and kept for ProcessBench, whose definition of F1 is used (2412.06559). The baselines
give a step a value without any training: its length, its place, a random number, the untrained model's mean
log p of its tokens; always right and always wrong give none at all. Intervals (95 %) are bootstrapped over
problems. An interrupted run goes on by the same command, and one that was validated goes on to ProcessBench.

By default (182 solutions of 61 questions, two epochs, 46 steps; 10 minutes of processor time on one core, 14
more for ProcessBench, 8 GB) the model is no better than a random number. F1 x 100:

                              GSM8K (400)        MATH (417)
    reward model              8.0 [4.2, 11.3]    2.3 [0.0, 5.0]
    reward model at 0.5       3.8 [0.9, 7.4]     0.0 [0.0, 0.0]
    random                    12.5 [6.8, 18.6]   5.5 [1.7, 9.6]
    latest step               1.0 [0.0, 3.0]     0.8 [0.0, 2.5]

and 0.0 for the longest step, the shortest, the untrained log p, always right and always wrong.

It blames the step that states the answer: in the first 60 problems of GSM8K the last step 40 times and no
other, where ProcessBench has 8 % of its first wrong steps (GSM8K; MATH 2 %). In the rows trained on, steps
that say "answer" or "boxed" are wrong in 31 % of 182 cases, all but the last ones in 17 %: that is worth
something there and nothing elsewhere.

Settings were chosen on the held-out solutions (66 of 20 questions, 17 right; --validate, the threshold of
each half from the other), two epochs at 1e-4: F1 24.2 [11.1, 35.1] with steps behind an error masked, 23.4
[10.8, 33.7] with --after-error keep, too few to tell them apart; longest step 11.0 [0.0, 21.7], all other
baselines 0.0. Other rates and numbers of epochs were not tried. A run of 40 questions at 3e-5 (15 steps) had
learnt next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from fit_data import (
    fit_arguments,
    fit_smollm,
    labelled,
    settings_of,
    some_questions,
    untrained_logprobs,
    values_of,
)

from rewards.intervals import bootstrap_bounds
from rewards.labelled import ProcessExample
from rewards.models.conventions import Convention
from rewards.models.fit_settings import LossSettings
from rewards.protocols.processbench import best_threshold, first_error, step_finding
from rewards.questions import hash64, question_hash, split_by_question

CONVENTION = Convention(
    kind="process",
    layout="plain",
    before_question="Question: ",
    after_question="\nSolution:\n",
    tag="\n\n",
    tokenise="alone",
    head="classes",
    activation="softmax",
    strategy="blank_line",
)
LENGTH = 768
Values = list[tuple[float, ...]]
Judge = Callable[[Sequence[ProcessExample]], Values]


def process_examples(dataset: str, source: str, folder: Path) -> list[ProcessExample]:
    return [e for e in labelled(dataset, source, folder) if isinstance(e, ProcessExample)]


def label_of(example: ProcessExample) -> int:
    """ProcessBench's: the index of the first wrong step, -1 for none."""
    return next((place for place, label in enumerate(example.labels) if label == 0), -1)


def report(name: str, found: Sequence[int], examples: Sequence[ProcessExample]) -> None:
    """Prints F1 with its interval, and its two parts."""
    predictions, labels = np.array(found), np.array([label_of(example) for example in examples])

    def f1(places: np.ndarray) -> dict[str, float | None]:
        kinds = set((labels[places] == -1).tolist())
        if len(kinds) < 2:
            return {"f1": None}
        return {"f1": step_finding(predictions[places].tolist(), labels[places].tolist()).f1}

    whole = step_finding(predictions.tolist(), labels.tolist())
    low, high = bootstrap_bounds(f1, len(labels))["f1"]
    told = f"F1 {100 * whole.f1:5.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    print(f"{name:28} {told}  error {whole.error:.3f}  correct {whole.correct:.3f}", flush=True)


def by_model(folder: Path) -> Judge:
    return lambda examples: completed(
        values_of(folder, [(e.question, e.steps) for e in examples], LENGTH), examples
    )


def completed(values: Sequence[Sequence[float]], examples: Sequence[ProcessExample]) -> Values:
    """Steps beyond the length are not read: nothing is said against them."""
    return [(*own, *[math.inf] * (len(e.steps) - len(own))) for own, e in zip(values, examples, strict=True)]


def by_step(value: Callable[[int, str], float]) -> Judge:
    return lambda examples: [
        tuple(float(value(place, step)) for place, step in enumerate(example.steps)) for example in examples
    ]


def by_untrained(examples: Sequence[ProcessExample]) -> Values:
    """SmolLM2's own mean log p of the steps, without any training."""
    texts = [(example.question, example.steps) for example in examples]
    return completed(untrained_logprobs(CONVENTION, texts, LENGTH), examples)


def crossed(values: Values, examples: Sequence[ProcessExample]) -> list[int]:
    """The steps found by the threshold that is best for the questions of the other half."""
    sides = [hash64(f"side:{question_hash(example.question)}") % 2 for example in examples]
    thresholds = [
        best_threshold(
            [row for row, own in zip(values, sides, strict=True) if own != side],
            [label_of(e) for e, own in zip(examples, sides, strict=True) if own != side],
        )
        for side in (0, 1)
    ]
    return [first_error(row, thresholds[side]) for row, side in zip(values, sides, strict=True)]


def on_processbench(
    sets: Mapping[str, Sequence[ProcessExample]], judges: Mapping[str, Judge], dev: Sequence[ProcessExample]
) -> None:
    """Prints what each finds there by the threshold that is best on the held-out solutions."""
    labels = [label_of(example) for example in dev]
    thresholds = {name: best_threshold(judge(dev), labels) for name, judge in judges.items()}
    print({name: round(threshold, 4) for name, threshold in thresholds.items()})
    for name, examples in sets.items():
        print(f"ProcessBench {name}: {len(examples)} problems; thresholds from {len(dev)} held-out solutions")
        for title, judge in judges.items():
            values = judge(examples)
            report(title, [first_error(row, thresholds[title]) for row in values], examples)
            if title == "reward model":
                report("reward model at 0.5", [first_error(row, 0.5) for row in values], examples)
        report("always right", [-1] * len(examples), examples)
        report("always wrong (first step)", [0] * len(examples), examples)


def main() -> None:
    arguments = fit_arguments(__doc__, train=93)
    arguments.add_argument("--bench", type=int, default=400, help="ProcessBench problems of each set at most")
    arguments.add_argument("--after-error", choices=("keep", "mask", "wrong"), default="mask")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    sets = {
        name: some_questions(
            process_examples("processbench", f"processbench/{name}.jsonl", given.folder), given.bench
        )
        for name in ("gsm8k", "math")
    }
    asked = {question_hash(example.question) for examples in sets.values() for example in examples}
    data = process_examples("prm800k", "prm_steps/prm800k_openr_multi_step.jsonl", given.folder)
    kept = [example for example in data if question_hash(example.question) not in asked]
    print(f"{len(data) - len(kept)} solutions of questions that ProcessBench asks are removed")
    train, dev = split_by_question(some_questions(kept, given.train), 0.3, seed=1)
    settings = replace(
        settings_of(given),
        loss=LossSettings(after_error=given.after_error),
        batch_size=8,
        micro_batch=1,
        max_length=LENGTH,
        checkpoint_every=50,
    )
    fit_smollm(CONVENTION, train, dev, settings, given.folder / "prm")
    draw = np.random.default_rng(0)
    judges: dict[str, Judge] = {
        "reward model": by_model(given.folder / "prm"),
        "longest step": by_step(lambda _, step: -len(step)),
        "shortest step": by_step(lambda _, step: len(step)),
        "latest step": by_step(lambda place, _: -place),
        "random": by_step(lambda _, __: draw.random()),
        "untrained log p": by_untrained,
    }
    if given.validate:
        print(f"{len(dev)} held-out solutions, thresholds of one half from the other")
        for title, judge in judges.items():
            report(title, crossed(judge(dev), dev), dev)
    else:
        on_processbench(sets, judges, dev)


if __name__ == "__main__":
    main()
