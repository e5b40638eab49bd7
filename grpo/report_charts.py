"""The charts of a run's report, by plotly: gold and proxy by step and by drift, probes, lengths, groups.

Gold against proxy by the root of the KL from the start policy is the picture of Gao et al. 2022 (arXiv
2210.10760): a proxy that goes on rising where gold turns down. Needs the extra `report`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from grpo.alarms import GOLD, LENGTH, PROXY, WITHIN, Line
from grpo.report_run import REFIT, REFUSED, Mark, RunRead, column, smoothed

WINDOW = 10
"""Steps of the mean that is drawn over the single values."""
_COLOURS = ("#1b7837", "#b2182b", "#2166ac", "#e08214", "#762a83", "#4d4d4d", "#35978f", "#bf812d")
_MARK_COLOURS = {REFIT: "#2166ac", REFUSED: "#999999"}
_ALARM_COLOUR = "#b2182b"
DRIFT = "watch/kl_completion"
_HELDOUT = "eval/heldout/accuracy"
_NAMED = {
    PROXY: "reward (proxy)",
    GOLD: "right (gold)",
    _HELDOUT: "held-out accuracy",
    WITHIN: "AUC of the reward within a problem",
    "watch/correlation": "correlation of reward and right",
    LENGTH: "length in tokens",
    "completions/clipped_ratio": "share cut off",
    DRIFT: "KL from the start, nats a completion",
}


def charts(run: RunRead) -> list[tuple[str, go.Figure]]:
    """(title, figure) of everything the run has numbers for."""
    lines, marks = [line for line in run.lines if line["step"] > 0], run.marks
    probes = _names(lines, "probe/", "/mean")
    parts = _names(lines, "reward/", "/mean")
    phases = [name for name in _names(lines, "timing_s/", "") if name != "timing_s/step"]
    found = [
        ("gold and proxy by step", _gold_and_proxy(run.lines, marks)),
        ("gold and proxy by distance from the start policy", _by_drift(lines, marks)),
        ("does it pay for right", _curves(lines, [WITHIN, "watch/correlation"], marks)),
        ("parts of the reward", _curves(lines, parts, marks)),
        ("what made-up completions would earn", _curves(lines, probes, marks, markers=True)),
        ("length", _curves(lines, [LENGTH], marks)),
        (
            "groups",
            _curves(lines, ["groups/frac_mixed", "groups/frac_all_good", "groups/frac_all_bad",
                            "groups/duplicates", "watch/silent_groups"], marks),
        ),
        ("distance from the start policy", _curves(lines, [DRIFT], marks)),
        ("seconds by phase", _curves(lines, phases, marks)),
    ]  # fmt: skip
    return [(title, figure) for title, figure in found if figure.data]


def to_html(figures: Sequence[go.Figure]) -> list[str]:
    """Pieces of HTML that need nothing else: the first carries the library."""
    return [
        figure.to_html(full_html=False, include_plotlyjs=place == 0, config={"displaylogo": False})
        for place, figure in enumerate(figures)
    ]


def _gold_and_proxy(lines: Sequence[Line], marks: Sequence[Mark]) -> go.Figure:
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    for trace in _with_mean(lines, GOLD, _COLOURS[0]):
        figure.add_trace(trace, secondary_y=False)
    steps, accuracy = column(lines, _HELDOUT)
    if steps:
        points = go.Scatter(x=steps, y=accuracy, mode="markers", name=_NAMED[_HELDOUT], marker={"size": 9})
        figure.add_trace(points, secondary_y=False)
    for trace in _with_mean(lines, PROXY, _COLOURS[1]):
        figure.add_trace(trace, secondary_y=True)
    figure.update_yaxes(title_text="share right", secondary_y=False)
    figure.update_yaxes(title_text=_NAMED[PROXY], secondary_y=True)
    return _dressed(figure, marks, "step")


def _by_drift(lines: Sequence[Line], marks: Sequence[Mark]) -> go.Figure:
    """Window means of gold and proxy over the root of the KL; what happened is marked on the gold."""
    figure = make_subplots(specs=[[{"secondary_y": True}]])
    drifted = [line for line in lines if DRIFT in line]
    root = {line["step"]: math.sqrt(max(0.0, line[DRIFT])) for line in drifted}
    for name, second, colour in ((GOLD, False, _COLOURS[0]), (PROXY, True, _COLOURS[1])):
        steps, values = column(drifted, name)
        places = list(zip(smoothed([root[s] for s in steps], WINDOW), smoothed(values, WINDOW), strict=True))
        if places:
            trace = go.Scatter(
                x=[x for x, _ in places], y=[y for _, y in places], mode="lines+markers", name=_NAMED[name],
                line={"color": colour}, marker={"size": 4}, text=[f"step {step:g}" for step in steps],
            )  # fmt: skip
            figure.add_trace(trace, secondary_y=second)
        if name == GOLD:
            for trace in _marks_on(dict(zip(steps, places, strict=True)), marks):
                figure.add_trace(trace, secondary_y=False)
    figure.update_yaxes(title_text="share right", secondary_y=False)
    figure.update_yaxes(title_text=_NAMED[PROXY], secondary_y=True)
    return _dressed(figure, (), "root of the KL from the start policy (nats a completion)")


def _marks_on(places: Mapping[float, tuple[float, float]], marks: Sequence[Mark]) -> Iterable[go.Scatter]:
    for kind in dict.fromkeys(mark.kind for mark in marks):
        shown = [mark for mark in marks if mark.kind == kind and mark.step in places]
        if shown:
            yield go.Scatter(
                x=[places[mark.step][0] for mark in shown], y=[places[mark.step][1] for mark in shown],
                mode="markers", name=kind, marker={"size": 12, "symbol": "x", "color": _colour(kind)},
                text=[f"step {mark.step}: {mark.text}" for mark in shown],
            )  # fmt: skip


def _colour(kind: str) -> str:
    return _MARK_COLOURS.get(kind, _ALARM_COLOUR)


def _curves(
    lines: Sequence[Line], names: Sequence[str], marks: Sequence[Mark], *, markers: bool = False
) -> go.Figure:
    figure = go.Figure()
    for name, colour in zip(names, _COLOURS * len(names), strict=False):
        if markers:
            steps, values = column(lines, name)
            figure.add_trace(
                go.Scatter(x=steps, y=values, mode="lines+markers", name=_name(name), line={"color": colour})
            )
        else:
            figure.add_traces(_with_mean(lines, name, colour))
    return _dressed(figure, marks, "step")


def _with_mean(lines: Sequence[Line], name: str, colour: str) -> list[go.Scatter]:
    """Single values faintly, and their running mean; nothing for a metric that the run has not."""
    steps, values = column(lines, name)
    if not steps:
        return []
    faint = go.Scatter(
        x=steps, y=values, mode="lines", line={"color": colour, "width": 1}, opacity=0.3,
        showlegend=False, hoverinfo="skip",
    )  # fmt: skip
    mean = go.Scatter(
        x=steps,
        y=smoothed(values, WINDOW),
        mode="lines",
        name=_name(name),
        line={"color": colour, "width": 2},
    )
    return [faint, mean]


def _names(lines: Sequence[Line], start: str, end: str) -> list[str]:
    """The metrics of a run that begin and end so, in order."""
    return sorted({name for line in lines for name in line if name.startswith(start) and name.endswith(end)})


def _name(metric: str) -> str:
    """A metric in a legend: the middle of `probe/<kind>/mean` and the like."""
    plain = metric.removeprefix("probe/").removeprefix("reward/").removeprefix("timing_s/")
    return _NAMED.get(metric, plain.removesuffix("/mean"))


def _dressed(figure: go.Figure, marks: Sequence[Mark], x_title: str) -> go.Figure:
    """Size, axes, and a line at every mark."""
    for mark in marks:
        colour = _colour(mark.kind)
        figure.add_vline(
            x=mark.step, line={"color": colour, "width": 1, "dash": "dot"},
            annotation={"text": mark.kind, "textangle": -90, "font": {"size": 10, "color": colour}},
        )  # fmt: skip
    figure.update_xaxes(title_text=x_title)
    figure.update_layout(
        height=420, margin={"t": 30, "b": 50}, template="plotly_white", hovermode="x unified"
    )
    return figure
