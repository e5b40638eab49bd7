"""The conventions of "same answer" and the static limits both sides are held to.

Conventions are choices on which public graders contradict each other; each is a field with a stated default.
Limits are constants, not settings: they bound time and memory before anything is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rewards.errors import ConfigError

MAX_CHARS = 4096
"""Longest gold or answer that is read at all."""
MAX_TOKENS = 1500
MAX_DEPTH = 64
"""Deepest nesting of brackets, braces and function arguments."""
MAX_DIGITS = 1000
"""Longest run of digits in one number, and the largest exponent of scientific notation."""
MAX_BITS = 8192
"""Largest integer, in bits, that exact arithmetic may produce."""
MAX_FACTORIAL = 200
MAX_TERMS = 300
"""Most terms of an expanded polynomial."""
MAX_EXPAND = 40
"""Largest power of a sum that is expanded."""
MAX_ITEMS = 256
"""Most members of a list, set or matrix."""

Percent = Literal["fraction", "lenient"]


@dataclass(frozen=True, slots=True)
class EquivalenceSettings:
    """Conventions of the comparison; hashable, so that it can key caches.

    min_digits: significant digits a decimal, on either side, needs to stand for an exact value that has no
        finite decimal (1/3, sqrt(2)); it must be that value correctly rounded. Two exact values, finite
        decimals included, are compared exactly whatever this says. The default lets 0.3333333 be 1/3
        and 3.14159 not be pi.
    rel_tol: extra relative tolerance between any two numbers; 0 keeps the comparison exact.
    percent: "fraction" reads 10 % as 0.1 only; "lenient" lets it also equal a bare 10 (as the
        verifier does by itself where the question asks for a percentage).
    reduced: True demands that a fraction be given in lowest terms.
    units_required: True rejects an answer without the unit or the currency of the gold; one that differs is
        always wrong.
    convert_units: True lets 5 cm equal 50 mm.
    degrees_optional: True lets 60 stand for 60 degrees (pi/3 always does).
    ordered_lists: True makes the order of a bare list (1, 2) count; parentheses always do, braces never.
    interval_notation: True lets an inequality equal its interval (x > 3 and (3, oo)).
    common_log: True reads log without a base as the logarithm to base 10, False as the natural one.
    mixed_numbers: True reads "3 1/3" and "3\\frac13" as 10/3.
    number_words: True lets an answer in words, "twelve", equal 12; against a gold in words it always does.
    decimal_comma: True reads "3,14" as 3.14.
    list_as_vector: True lets a bracketed list [1, 2] equal a row or a column.
    ratios_reduced: True lets 2:4 equal 1:2.
    case_sensitive_text: True compares text golds with their case.
    allow_unevaluated: True lets a sum, product, integral or limit stand for its value; closed arithmetic
        (17*23, gcd, mod, binomials) always does.
    """

    min_digits: int = 7
    rel_tol: float = 0.0
    percent: Percent = "fraction"
    reduced: bool = False
    units_required: bool = False
    convert_units: bool = False
    degrees_optional: bool = True
    ordered_lists: bool = False
    interval_notation: bool = True
    common_log: bool = False
    mixed_numbers: bool = True
    number_words: bool = False
    decimal_comma: bool = False
    list_as_vector: bool = True
    ratios_reduced: bool = False
    case_sensitive_text: bool = False
    allow_unevaluated: bool = False

    def __post_init__(self) -> None:
        if self.min_digits < 1:
            raise ConfigError(f"min_digits={self.min_digits}: expected >= 1 significant digit")
        if not 0.0 <= self.rel_tol < 0.1:
            raise ConfigError(f"rel_tol={self.rel_tol}: expected 0 <= rel_tol < 0.1, a relative tolerance")
        if self.percent not in get_args(Percent):
            raise ConfigError(f"percent={self.percent!r}: expected one of {', '.join(get_args(Percent))}")
