r"""Whether an answer is a calculation still to be done, such as `37+45` or `6 \times 7`, and no number.

For problems that state `answer_type="number"`: to repeat the sum that was asked for is then no answer,
although it equals the gold. Judges the writing only, not the value.
"""

from __future__ import annotations

import re

_RESULT = re.compile(r"[=≈≃]|\\(?:approx|simeq|doteq)(?![A-Za-z])")
_SCIENTIFIC = re.compile(r"\s*(?:\*|×|·|⋅|\\times|\\cdot)\s*\{?10\}?\s*(?:\^|\*\*|⁻|[⁰¹²³⁴-⁹])")
_OPERATION = re.compile(
    r"(?<=[\w)\]}%])\s*"
    r"(?:(?:[*×·⋅÷!]|\\(?:times|cdot|div|pm|mp)(?![A-Za-z]))|(?<![0-9][eE])[-+−±](?=[\s{]*[\\\d(.]))"
)


def is_calculation(answer: str) -> bool:
    r"""Whether what follows the last equals sign joins numbers by an operation.

    Fractions, mixed numbers, powers of ten, signs and units belong to a number.

    >>> is_calculation("37+45"), is_calculation("37+45 = 82"), is_calculation(r"4.5 \times 10^{33}")
    (True, False, False)
    """
    result = _RESULT.split(answer)[-1]
    return _OPERATION.search(_SCIENTIFIC.sub("e", result)) is not None
