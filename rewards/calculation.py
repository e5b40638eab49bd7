r"""Answers that leave the work to the reader: `37+45`, or the expression that was to be simplified.

Such an answer equals its gold, so that a comparison of values pays for repeating the question. Judges the
writing only, not the value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_RESULT = re.compile(r"[=≈≃]|\\(?:approx|simeq|doteq)(?![A-Za-z])")
_SCIENTIFIC = re.compile(r"(?<!\s)\s*+(?:\*|×|·|⋅|\\times|\\cdot)\s*\{?10\}?\s*(?:\^|\*\*|⁻|[⁰¹²³⁴-⁹])")
_OPERATION = re.compile(
    r"(?<=[\w)\]}%])\s*+"
    r"(?:(?:[*×·⋅÷!]|\\(?:times|cdot|div|pm|mp)(?![A-Za-z]))"
    r"|(?<![0-9][eE])[-+−±](?=[\s{]*(?:[\\\d(.]|[A-Za-z](?![A-Za-z]))))"
)
_LAYOUT = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])|(?<=\\)[dt](?=frac)|[\s${}]")
_TIMES = re.compile(r"[×·⋅]|\\(?:times|cdot)(?![A-Za-z])")


def leaves_work(answer: str, question: str, golds: Sequence[str], *, number: bool) -> bool:
    r"""Whether an answer is a calculation where its result is asked for.

    So it is, unless a gold is such a calculation too, when a number is asked for; and for other answers when
    the question holds it word for word and no gold does.

    >>> leaves_work("37+45", "37+45=", ["82"], number=True)
    True
    >>> leaves_work("x^2-1", "Factor $x^2 - 1$.", ["(x-1)(x+1)"], number=False)
    True
    >>> leaves_work("x^2+1", "Factor $x^2 - 1$.", ["(x-1)(x+1)"], number=False)
    False
    """
    if not is_calculation(answer):
        return False
    if number:
        return not any(map(is_calculation, golds))
    bare = _bare(_RESULT.split(answer)[-1])
    return bare in _bare(question) and bare not in map(_bare, golds)


def is_calculation(answer: str) -> bool:
    r"""Whether what follows the last equals sign joins numbers by an operation.

    Fractions, mixed numbers, powers of ten, signs and units belong to a number.

    >>> is_calculation("37+45"), is_calculation("37+45 = 82"), is_calculation(r"4.5 \times 10^{33}")
    (True, False, False)
    """
    result = _RESULT.split(answer)[-1]
    return _OPERATION.search(_SCIENTIFIC.sub("e", result)) is not None


def _bare(text: str) -> str:
    """Without spaces, delimiters and braces, and with one sign for times."""
    return _LAYOUT.sub("", _TIMES.sub("*", text))
