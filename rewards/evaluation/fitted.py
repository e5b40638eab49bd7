"""The figures of a fit, as a result that a report card keeps: its held-out examples and its course.

Knows what the figures are called and what they mean; computes none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rewards.evaluation.results import Chart, Findings, Line, Measure, Result
from rewards.evaluation.settings import FITTED

if TYPE_CHECKING:
    from rewards.models.fit_report import FitReport

_LEVEL = 0.95  # of intervals, of which there are none here
_MEANINGS: Mapping[str, str] = {
    "auc": "chance that a right one scores above a wrong one; 0.5 is guessing",
    "auc_within": "the same of completions of one question",
    "accuracy": "share of pairs whose chosen completion scores higher",
    "error_ap": "average precision of finding wrong steps by low values",
    "first_error_recall": "share of wrong solutions whose first step below one half is the first wrong one",
    "ece": "expected calibration error: by how much probabilities miss shares",
    "brier": "mean squared error of the probabilities",
}


def fit_result(report: FitReport, model: str, source: str, questions: int) -> Result:
    """What came of a fit.

    Args:
        report: of the fit.
        model: the folder, for people.
        source: the file of the held-out examples, or the one they were taken from.
        questions: held out.
    """
    measures = tuple(
        Measure(name, value, None, _meaning(name))
        for name, value in report.metrics.items()
        if value is not None
    )
    course = Chart(
        "training loss", "step", "loss", (Line("loss", tuple((float(s), loss) for s, loss in report.losses)),)
    )
    charts = (course,) if report.losses else ()
    findings = Findings(questions, measures, charts=charts, said=tuple(_said(report)))
    return Result(FITTED, "held out by the fit", model, (source,), _LEVEL, findings)


def taken(report: FitReport) -> str:
    """What was trained on and what was left out, in a line."""
    left_out = "".join(f", {count} {reason.replace('_', ' ')}" for reason, count in report.left_out.items())
    empty = f" ({report.empty} of them with an empty completion)" if report.empty else ""
    return f"{report.examples} examples of {report.questions} questions{empty}{left_out}"


def _said(report: FitReport) -> Iterator[str]:
    yield f"trained from {report.base} ({report.head} head) on {taken(report)}; {report.steps} steps"
    yield f"held out: {report.heldout} examples" + ("" if report.heldout else ": no figures, no calibration")
    unmeasured = [name for name, value in report.metrics.items() if value is None]
    if unmeasured:
        yield f"nothing to measure: {', '.join(unmeasured)}"
    if report.calibration is not None:
        told = report.calibration
        yield f"calibration: sigmoid({told.scale:.4g} x + {told.shift:.4g}), fitted on the held-out examples"


def _meaning(name: str) -> str:
    first, _, rest = name.partition("/")
    if first == "calibrated":
        return f"{_MEANINGS[rest]}; calibrated on these very examples"
    return _MEANINGS[first] + (f", of {rest}" if rest else "")
