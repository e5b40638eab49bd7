"""An outcome reward model from SmolLM2-135M on the GSM8K model solutions, against plain baselines.

    PYTHONPATH=tests python tests/bench/bench_fit_orm.py --folder RUN [--validate --train 250 --test 130 ...]

Questions are split by hash: 30 % are the test, 10 % of the others choose nothing but the calibration. Trained
is on questions with right and wrong solutions (pointwise, balanced within the question, or --pairs), tested
on all questions of that kind in the test part: there alone can a pick be better than another. The plain
picks: the longest and the shortest solution, the most and the fewest lines, the one that the untrained model
finds likeliest (mean log p of a token), and that of the model which is best over the training questions (the
four solutions of a question come from four models; the reward model is not told which). Intervals (95 %) are
bootstrapped over questions. An interrupted run goes on by the same command.

By default (1733 solutions of 439 questions, two epochs, 217 steps; 34 minutes of processor time on one core,
7 GB) it tells right from wrong a little better than chance, not surely better than the number of lines does,
and picks no better than chance. 232 test questions:

                          AUC within questions    best of 4
    reward model          0.572 [0.516, 0.624]    0.448 [0.384, 0.513]
    untrained log p       0.516 [0.471, 0.563]    0.470 [0.401, 0.534]
    longest               0.539 [0.492, 0.588]    0.513 [0.448, 0.573]
    most lines            0.555 [0.516, 0.598]    0.494 [0.445, 0.549]
    random                0.513 [0.466, 0.564]    0.504 [0.444, 0.569]
    the best model's      0.692 [0.661, 0.722]    0.806 [0.754, 0.858]

Any one is right with 0.484. Over all solutions the AUC is 0.581.

Settings were chosen by AUC within 130 training questions (--validate, --epochs 1), on 250 others at 1e-4:
pointwise 0.572 [0.497, 0.641], --pairs 2 0.563 [0.490, 0.629]: no difference that so few could show, so the
plainer one was kept. Two epochs of all training questions were not compared with one. A run of 120 questions
at 3e-5 (30 steps) had learnt nothing: 0.494 [0.423, 0.565] on 120 test questions. Since then the rate, the
steps and the questions have all grown; which of them helped is not known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace

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
    with_bounds,
)

from rewards.labelled import OutcomeExample, PreferenceExample
from rewards.models.conventions import Convention
from rewards.models.fit_settings import LossSettings
from rewards.protocols.best_of_n import Candidates, picks
from rewards.protocols.discrimination import auc, auc_within
from rewards.questions import hash64, question_hash, split_by_question

CONVENTION = Convention(
    kind="outcome",
    layout="plain",
    before_question="Question: ",
    after_question="\nSolution: ",
    eos=True,
    read_at="end",
    head="scalar",
)
LENGTH = 384
Scores = Sequence[float]


def mixed(examples: Sequence[OutcomeExample]) -> list[OutcomeExample]:
    """Those of questions with right and wrong solutions."""
    kinds: dict[int, set[float]] = {}
    for example in examples:
        kinds.setdefault(question_hash(example.question), set()).add(example.label)
    return [example for example in examples if len(kinds[question_hash(example.question)]) == 2]


def report(name: str, scores: Scores, examples: Sequence[OutcomeExample]) -> None:
    """Prints AUC within questions and the share of questions whose best of four is right."""
    groups: dict[int, list[int]] = {}
    for place, example in enumerate(examples):
        groups.setdefault(question_hash(example.question), []).append(place)
    labels = [example.label == 1 for example in examples]
    within, candidates = [], []
    for places in groups.values():
        own, right = [scores[place] for place in places], [labels[place] for place in places]
        within.append(auc(own, right) or 0.0)
        candidates.append(Candidates(own, right, None))
    worth = picks(candidates)
    print(with_bounds(f"{name}: AUC within", within), flush=True)
    print(with_bounds(f"{name}: best of 4", worth["best_of_n"]), flush=True)
    if name == "reward model":
        keys = [question_hash(example.question) for example in examples]
        pooled = auc_within(scores, labels, keys)
        print(f"{'AUC over all':28} {auc(scores, labels):.3f}; within, pairs pooled {pooled:.3f}")
        print(with_bounds("any one: pass@1", worth["pass@1"]))
        print(with_bounds("oracle: pass@4", worth["pass@n"]))


def in_pairs(examples: Sequence[OutcomeExample], most: int) -> list[PreferenceExample]:
    """Right against wrong solutions of the same question, so many pairs of each at most, chosen by hash."""
    groups: dict[int, list[OutcomeExample]] = {}
    for example in examples:
        groups.setdefault(question_hash(example.question), []).append(example)
    kept: list[PreferenceExample] = []
    for own in groups.values():
        pairs = [
            PreferenceExample(right.question, right.completion, wrong.completion)
            for right in own
            for wrong in own
            if (right.label, wrong.label) == (1, 0)
        ]
        kept += sorted(pairs, key=lambda pair: hash64(pair.chosen + pair.rejected))[:most]
    return kept


def train_orm(
    given: argparse.Namespace, train: Sequence[OutcomeExample], dev: Sequence[OutcomeExample]
) -> None:
    """Fits what the command line asks for."""
    settings = replace(
        settings_of(given), batch_size=16, micro_batch=4, max_length=LENGTH, checkpoint_every=50
    )
    if given.pairs:
        settings = replace(settings, batch_size=8, micro_batch=2)
        pairs = in_pairs(train, given.pairs)
        fit_smollm(CONVENTION, pairs, in_pairs(dev, given.pairs), settings, given.folder / "orm")
    else:
        loss = LossSettings(balance="question")
        fit_smollm(CONVENTION, train, dev, replace(settings, loss=loss), given.folder / "orm")


def main() -> None:
    arguments = fit_arguments(__doc__, train=10_000)
    arguments.add_argument("--test", type=int, default=10_000, help="test questions at most")
    arguments.add_argument("--pairs", type=int, default=0, help="train on so many pairs a question at most")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    data = labelled("gsm8k_solutions", "gsm8k/example_model_solutions.jsonl", given.folder)
    rest, test = split_by_question([e for e in data if isinstance(e, OutcomeExample)], 0.3, seed=1)
    if given.validate:
        rest, test = split_by_question(rest, 0.3, seed=3)
    train, dev = split_by_question(mixed(rest), 0.1, seed=2)
    train, dev = some_questions(train, given.train), some_questions(dev, max(4, given.train // 10))
    test = some_questions(mixed(test), given.test)
    train_orm(given, train, dev)
    texts = [(example.question, (example.completion,)) for example in test]
    report("reward model", [values[0] for values in values_of(given.folder / "orm", texts, LENGTH)], test)
    if not given.validate:
        untrained = untrained_logprobs(CONVENTION, texts, LENGTH)
        report("untrained log p", [values[0] for values in untrained], test)
    draw = np.random.default_rng(0)
    best = best_model(train)
    plain: dict[str, Callable[[OutcomeExample], float]] = {
        "longest": lambda e: len(e.completion),
        "shortest": lambda e: -len(e.completion),
        "most lines": lambda e: e.completion.count("\n"),
        "fewest lines": lambda e: -e.completion.count("\n"),
        "random": lambda _: draw.random(),
        f"always {best}": lambda e: float(e.meta["model"] == best),
    }
    for name, score in plain.items():
        report(name, [float(score(example)) for example in test], test)


def best_model(examples: Sequence[OutcomeExample]) -> str:
    """The model with most right solutions."""
    right: dict[str, float] = {}
    for example in examples:
        right[example.meta["model"]] = right.get(example.meta["model"], 0.0) + example.label
    return max(right, key=lambda name: right[name])


if __name__ == "__main__":
    main()
