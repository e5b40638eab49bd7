"""The labelled sets by name: their readers, their places on the hub, and what their labels add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from data_prep.config import LabelledConfig
from data_prep.examples import Reader
from data_prep.outcome_sets import read_gsm8k_solutions
from data_prep.preference_sets import read_preferences
from data_prep.prm800k import read_prm800k
from data_prep.process_sets import read_math_shepherd, read_processbench
from rewards.labelled import NEUTRAL, Example, PreferenceExample, ProcessExample, StepLabel

HUBS: Mapping[str, str] = {"math_shepherd": "peiyi9979/Math-Shepherd", "processbench": "Qwen/ProcessBench"}
"""Where on the Hugging Face hub a set lies; the parts of ProcessBench are splits (split=gsm8k, math, ...)."""


def reader_of(dataset: str, options: LabelledConfig) -> Reader:
    """The reader of a set, one of `rewards.labelled.SETS`."""
    readers: Mapping[str, Reader] = {
        "gsm8k_solutions": read_gsm8k_solutions,
        "prm800k": partial(read_prm800k, alternatives=options.alternatives),
        "math_shepherd": read_math_shepherd,
        "processbench": read_processbench,
        "preference": partial(read_preferences, rated_margin=options.rated_margin),
    }
    return readers[dataset]


def count_labels(examples: Iterable[Example]) -> dict[str, int]:
    """How many completions, or steps, there are of each label; pairs are counted as such."""
    counts: Counter[str] = Counter()
    for example in examples:
        if isinstance(example, PreferenceExample):
            counts["pairs"] += 1
        elif isinstance(example, ProcessExample):
            counts.update(f"steps {_name(label)}" for label in example.labels)
        else:
            counts[_name(example.label)] += 1
    return dict(sorted(counts.items()))


def _name(label: StepLabel) -> str:
    if label is None:
        return "unjudged"
    if label == NEUTRAL:
        return NEUTRAL
    return {1.0: "right", 0.0: "wrong"}.get(label, "between")
