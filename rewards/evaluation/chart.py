"""Charts as SVG: lines, axes and a legend, nothing that runs; every text in them is escaped.

Drawn here and not by plotly, whose charts bring five megabytes of script into every page and take names for
markup; a model's card is to be light, and readable where no extra is installed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rewards import page
from rewards.evaluation.results import Chart, Line

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _LEGEND = 760, 340, 56, 44, 12, 220
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # Okabe and Ito
_GUIDE = "#bbbbbb"
_MAX_DOTS = 20
_TICKS = 5


def svg(chart: Chart) -> str:
    """The chart as one svg element; a line without points is in the legend only."""
    points = [point for line in chart.lines for point in line.points]
    x, y = (_Scale.over([point[axis] for point in points], axis) for axis in (0, 1))
    body = [*_axes(chart, x, y)]
    drawn = 0
    for place, line in enumerate(chart.lines):
        colour = _GUIDE if line.guide else _COLOURS[drawn % len(_COLOURS)]
        drawn += not line.guide
        body += [*_line(line, x, y, colour), _legend(line, place, colour)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'role="img" font-family="sans-serif" font-size="12"><title>{page.text(chart.title)}</title>'
        f"{''.join(body)}</svg>"
    )


class _Scale:
    """Values of one axis -> places on the drawing, and where its ticks are."""

    def __init__(self, low: float, high: float, axis: int) -> None:
        step = _step((high - low) / _TICKS)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        self.ticks = [step * place for place in range(first, last + 1)]
        self._start, self._end = (_LEFT, _WIDTH - _LEGEND) if axis == 0 else (_HEIGHT - _BOTTOM, _TOP)

    @staticmethod
    def over(values: Sequence[float], axis: int) -> _Scale:
        """The scale that holds the values."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        return _Scale(low, high if high > low else low + 1.0, axis)

    def place(self, value: float) -> float:
        """Where a value lies, in units of the drawing."""
        share = (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])
        return round(self._start + share * (self._end - self._start), 1)


def _step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, 50, ... (or 0.1, 0.2, ...) that is at least so large.

    >>> [_step(0.03), _step(3.0)]
    [0.05, 5.0]
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))


def _axes(chart: Chart, x: _Scale, y: _Scale) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _LEGEND
    for tick in y.ticks:
        at = y.place(tick)
        yield f'<path d="M{_LEFT} {at}H{right}" stroke="#eee"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{tick:.4g}</text>'
    for tick in x.ticks:
        yield f'<text x="{x.place(tick)}" y="{bottom + 16}" text-anchor="middle">{tick:.4g}</text>'
    yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" stroke="#444" fill="none"/>'
    across, up = (_LEFT + right) / 2, (_TOP + bottom) / 2
    yield f'<text x="{across}" y="{_HEIGHT - 8}" text-anchor="middle">{page.text(chart.x)}</text>'
    turned = f'transform="rotate(-90 14 {up})"'
    yield f'<text x="14" y="{up}" text-anchor="middle" {turned}>{page.text(chart.y)}</text>'


def _line(line: Line, x: _Scale, y: _Scale, colour: str) -> Iterator[str]:
    places = [(x.place(a), y.place(b)) for a, b in line.points]
    joined = " ".join(f"{a},{b}" for a, b in places)
    yield f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    if len(places) <= _MAX_DOTS and not line.guide:
        yield from (f'<circle cx="{a}" cy="{b}" r="2.6" fill="{colour}"/>' for a, b in places)


def _legend(line: Line, place: int, colour: str) -> str:
    left, at = _WIDTH - _LEGEND + 16, _TOP + 14 + 18 * place
    return (
        f'<path d="M{left} {at - 4}h20" stroke="{colour}" stroke-width="2"/>'
        f'<text x="{left + 26}" y="{at}">{page.text(line.name)}</text>'
    )
