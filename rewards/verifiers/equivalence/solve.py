"""The worker's entry: finishes an AlgebraTask. Importing this loads no algebra; calling it does."""

from __future__ import annotations

from rewards.types import Reason
from rewards.verifiers.equivalence.compare import equal
from rewards.verifiers.equivalence.decide import AlgebraTask, Decision, read
from rewards.verifiers.equivalence.normalise import clean
from rewards.verifiers.equivalence.rules import Rules


def solve(task: AlgebraTask) -> Decision:
    """Compares with high-precision numerics and sympy; run it in a killable worker, it may take long."""
    # loaded here, not above: the calling process imports this module and must stay free of sympy and mpmath
    from rewards.verifiers.equivalence import algebra

    if task.gold.parsed is None:
        return Decision(False, Reason.MISMATCH)
    rules = Rules(algebra.same_for(task.settings), algebra.proportional, task.settings, patient=True)
    readings = read(clean(task.answer), task.gold, task.settings)
    if any(equal(task.gold.parsed, reading, rules) is True for reading in readings):
        return Decision(True, Reason.MATCH_SYMBOLIC)
    return Decision(False, Reason.MISMATCH)
