"""Figures as texts: shares as per cent with two digits, others with four."""

from __future__ import annotations

from rewards.evaluation.results import Measure

Bounds = tuple[float, float]


def percent(share: float) -> str:
    """A share in words.

    >>> percent(0.1532)
    '15.32 %'
    """
    return f"{100 * share:.2f} %"


def percent_range(bounds: Bounds | None) -> str:
    """An interval of shares, empty for none.

    >>> percent_range((0.12, 0.184))
    '12.00 to 18.40'
    """
    return "" if bounds is None else " to ".join(f"{100 * end:.2f}" for end in bounds)


def shown(measure: Measure) -> tuple[str, str, str, str]:
    """A figure as a row of texts: name, value, interval, meaning."""
    if measure.percent:
        return measure.name, percent(measure.value), percent_range(measure.bounds), measure.meaning
    ends = " to ".join(f"{end:.4f}" for end in measure.bounds or ())
    return measure.name, f"{measure.value:.4f}", ends, measure.meaning


def headings(level: float) -> tuple[str, str, str, str]:
    """The headings above such rows."""
    return "figure", "value", interval(level), "meaning"


def interval(level: float) -> str:
    """The heading of a column of intervals.

    >>> interval(0.95)
    '95 % interval'
    """
    return f"{100 * level:g} % interval"
