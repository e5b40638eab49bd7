"""Inputs that are too long keep their first whole steps, at scoring and in training alike.

Knows lengths in tokens; knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rewards.models.rendering import Rendered, Renderer

CHARS_PER_TOKEN = 32
"""Characters that a token stands for at most on average, so that a megabyte is never tokenised in vain."""


@dataclass(frozen=True, slots=True)
class Request:
    """A question, and a completion as one or more steps, whose texts joined are the completion."""

    question: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What of a request fits.

    row: the input. kept: leading steps in it. cut: the only kept step had to be cut short.
    """

    row: Rendered
    kept: int
    cut: bool = False


def render_steps(renderer: Renderer, question: str, steps: Sequence[str]) -> Rendered:
    """The input of a completion in steps, which for an outcome model are one."""
    outcome = renderer.convention.kind == "outcome"
    return renderer.render(question, ["".join(steps)] if outcome else steps)


def fit_steps(renderer: Renderer, request: Request, max_length: int) -> Fitted:
    """The longest run of whole leading steps whose input has at most max_length tokens, or what fits of the
    first step. The question alone must fit.
    """

    def render(steps: Sequence[str]) -> Rendered:
        return render_steps(renderer, request.question, steps)

    def fits(steps: Sequence[str]) -> bool:
        return len(render(steps).ids) <= max_length

    steps = _bounded(request.steps, max_length * CHARS_PER_TOKEN)
    cut = steps[0] != request.steps[0]
    whole = render(steps)
    if len(whole.ids) <= max_length:
        return Fitted(whole, len(steps), cut)
    kept = _largest(len(steps), lambda count: fits(steps[:count]))
    if kept:
        return Fitted(render(steps[:kept]), kept, cut)
    length = _largest(len(steps[0]), lambda count: fits([steps[0][:count]]))
    return Fitted(render([steps[0][:length]]), 1, cut=True)


def _bounded(steps: Sequence[str], left: int) -> list[str]:
    """The leading steps of at most so many characters; at least one, or its start."""
    bounded = [steps[0][:left]]
    for step in steps[1:]:
        left -= len(bounded[-1])
        if len(step) > left:
            break
        bounded.append(step)
    return bounded


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest count in [1, most] that fits, 0 for none; a count fits only where all smaller ones do."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
