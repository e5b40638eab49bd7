"""Examples -> token ids with their targets -> batches, in an order of like lengths.

Texts are rendered and read exactly as at scoring (rewards.models.rendering); what is too long keeps whole
steps with their labels, or is left out and counted. Knows nothing of models.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from torch import Tensor

from rewards.format import FormatSpec
from rewards.labelled import Example, OutcomeExample, PreferenceExample, ProcessExample
from rewards.layout import is_visible
from rewards.models.backbone import completion_span, padded
from rewards.models.fit_settings import FitSettings
from rewards.models.judging import cut
from rewards.models.rendering import Renderer
from rewards.models.targets import Masses, outcome_masses, step_masses
from rewards.models.truncation import Request, fit_steps, render_steps

_WINDOW = 16  # batches whose examples are sorted by length together


@dataclass(frozen=True, slots=True)
class Row:
    """An input and what is learnt from it.

    ids: the tokens. reads: the positions read. span: the completion's tokens, [first, last). masses: one a
    read, or one for the whole of a log-ratio; none in pairs. reference: log p of the span by the reference
    model (log-ratios).
    """

    ids: tuple[int, ...]
    reads: tuple[int, ...]
    span: tuple[int, int]
    masses: tuple[Masses, ...] = ()
    reference: float = 0.0


@dataclass(frozen=True, slots=True)
class Item:
    """An example: one row, or those of a pair, the chosen one first.

    units: what the loss is divided by counts it so often. margin: of a pair. empty: a completion shows
    nothing.
    """

    rows: tuple[Row, ...]
    units: int = 1
    margin: float = 0.0
    empty: bool = False

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return max(len(row.ids) for row in self.rows)


class Batch(TypedDict):
    """Rows padded on the right.

    ids, mask: (B, L). reads: (R, 2) row and position. spans: (B, 2). reference: (B,) fp64. masses: (R, C), or
    (B, C) of log-ratios. margins: (B / 2,) of pairs, whose chosen rows come first; else (0,).
    """

    ids: Tensor
    mask: Tensor
    reads: Tensor
    spans: Tensor
    reference: Tensor
    masses: Tensor
    margins: Tensor


class Inputs(TypedDict):
    """What the Trainer hands to the model; labels: (units,) zeros, which it counts over a whole step."""

    batch: Batch
    labels: Tensor


def encode(
    renderer: Renderer, examples: Sequence[Example], settings: FitSettings, max_length: int
) -> tuple[list[Item], Mapping[str, int]]:
    """The examples of one kind as items, in order, and how many were left out, by reason."""
    left_out: Counter[str] = Counter()
    outcomes = [example for example in examples if isinstance(example, OutcomeExample)]
    masses = iter(outcome_masses(outcomes, settings.loss.balance))
    items: list[Item] = []
    for example in examples:
        match example:
            case OutcomeExample():
                found = _outcome(renderer, example, next(masses), max_length)
            case PreferenceExample():
                found = _pair(renderer, example, max_length)
            case ProcessExample():
                found = _solution(renderer, example, settings, max_length)
        empty = not all(map(is_visible, _completions(example)))
        if empty and renderer.convention.floor is not None:
            found = "empty"  # earns the floor, whatever the model has learnt
        if isinstance(found, Item):
            items.append(replace(found, empty=empty))
        else:
            left_out[found] += 1
    return items, dict(left_out)


def collate(items: Sequence[Item], pad: int) -> Inputs:
    """One batch of the items; of pairs the chosen rows come first."""
    rows = [item.rows[side] for side in range(len(items[0].rows)) for item in items]
    ids, mask = padded([row.ids for row in rows], pad)
    pairs = len(items[0].rows) == 2
    return Inputs(
        batch=Batch(
            ids=ids,
            mask=mask,
            reads=torch.tensor([(place, read) for place, row in enumerate(rows) for read in row.reads]),
            spans=torch.tensor([row.span for row in rows]),
            reference=torch.tensor([row.reference for row in rows], dtype=torch.float64),
            masses=torch.tensor([mass for row in rows for mass in row.masses], dtype=torch.float32),
            margins=torch.tensor([item.margin for item in items] if pairs else [], dtype=torch.float32),
        ),
        labels=torch.zeros(sum(item.units for item in items), dtype=torch.long),
    )


def training_order(lengths: Sequence[int], epochs: float, batch_size: int, seed: int) -> list[int]:
    """Places of the examples in batches of like lengths; each epoch permutes anew, the last may be a part.

    Only the seed decides, so that a run that is resumed sees what it would have seen.
    """
    draw = random.Random(seed)
    stream: list[int] = []
    total = max(1, round(epochs * len(lengths)))
    while len(stream) < total:
        places = list(range(len(lengths)))
        draw.shuffle(places)
        stream += places[: total - len(stream)]
    order: list[int] = []
    for start in range(0, total, _WINDOW * batch_size):
        window = sorted(
            stream[start : start + _WINDOW * batch_size], key=lambda place: (-lengths[place], place)
        )
        batches = [window[first : first + batch_size] for first in range(0, len(window), batch_size)]
        tail = [batches.pop()] if len(batches[-1]) < batch_size else []  # a smaller batch comes last of all
        draw.shuffle(batches)
        order += [place for batch in [*batches, *tail] for place in batch]
    return order


def _completions(example: Example) -> tuple[str, ...]:
    match example:
        case OutcomeExample():
            return (example.completion,)
        case PreferenceExample():
            return (example.chosen, example.rejected)
        case ProcessExample():
            return ("".join(example.steps),)


def _outcome(renderer: Renderer, example: OutcomeExample, masses: Masses, max_length: int) -> Item | str:
    if not any(masses):
        return "one_kind"  # its question has right or wrong ones only
    row = _completion(renderer, example.question, example.completion, (masses,))
    return Item((row,)) if len(row.ids) <= max_length else "too_long"


def _pair(renderer: Renderer, example: PreferenceExample, max_length: int) -> Item | str:
    chosen, rejected = (
        _completion(renderer, example.question, text) for text in (example.chosen, example.rejected)
    )
    item = Item((chosen, rejected), margin=example.margin)
    return item if item.length <= max_length else "too_long"


def _completion(renderer: Renderer, question: str, completion: str, masses: tuple[Masses, ...] = ()) -> Row:
    """A completion that no one has cut into steps; a process convention's own strategy does."""
    steps = (completion,)
    if renderer.convention.kind == "process":
        places = cut(completion, FormatSpec(), renderer.convention.strategy)
        steps = tuple(completion[place.start : place.end] for place in places)
    row = render_steps(renderer, question, steps)
    return Row(row.ids, row.reads, completion_span(row), masses)


def _solution(
    renderer: Renderer, example: ProcessExample, settings: FitSettings, max_length: int
) -> Item | str:
    if len(example.steps) > 1 and not all(map(is_visible, example.steps)):
        return "blank_step"  # completions are never cut so
    if len(renderer.render(example.question, [""]).ids) > max_length:
        return "too_long"
    fitted = fit_steps(renderer, Request(example.question, example.steps), max_length)
    if fitted.cut:
        return "too_long"
    kept = replace(example, steps=example.steps[: fitted.kept], labels=example.labels[: fitted.kept])
    masses = step_masses(kept, settings.loss)
    labelled = sum(map(any, masses))
    if not labelled:
        return "no_label"
    row = Row(fitted.row.ids, fitted.row.reads, completion_span(fitted.row), tuple(masses))
    return Item((row,), units=labelled if settings.loss.mean == "step" else 1)
