"""The mathematics of "same answer": decide in this process, solve in a worker what needs algebra.

`prepare_gold` reads a gold once, `decide` settles most answers in microseconds with the standard library, and
`solve` (the only code that loads sympy and mpmath, lazily) finishes the rest where it can be killed.
"""

from rewards.verifiers.equivalence.decide import AlgebraTask, Decision, decide
from rewards.verifiers.equivalence.gold import Gold, prepare_gold
from rewards.verifiers.equivalence.settings import EquivalenceSettings
from rewards.verifiers.equivalence.solve import solve

__all__ = ["AlgebraTask", "Decision", "EquivalenceSettings", "Gold", "decide", "prepare_gold", "solve"]
