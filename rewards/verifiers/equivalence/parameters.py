r"""The integer parameter of a family of values: `2k\pi, k \in \mathbb{Z}` is 2k pi, k being any integer.

Text in, text and letter out. The declaration may be left out; the letter is free where it is declared.
"""

from __future__ import annotations

import re

_TAIL = 80  # characters from the end in which a declaration stands
_UPRIGHT = re.compile(r"\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}")
_DECLARED = re.compile(
    r"(?:[\s,;(]|\\[,;:]|\\q?quad(?![A-Za-z])|\\forall(?![A-Za-z])"
    r"|\b(?:where|for|with|and|all|any|some|every|each)\b)+"
    r"(?:([a-zA-Z])\s*(?:\\in\s*(?:\\(?:mathbb|Bbb|mathbf)\s*)?(?:\{\s*Z\s*\}|Z)|(?:is\s+)?an[y]?\s+integer)"
    r"|integers?\s+([a-zA-Z]))[\s)]*\Z"
)


def undeclared(text: str, letter: str = "") -> tuple[str, str]:
    r"""The cleaned text without the declaration of its parameter, and the parameter; "" where it has none.

    letter: what the parameter is to be called, if the text does not use that letter otherwise.

    >>> undeclared("2k\\pi, k \\in \\mathbb{Z}"), undeclared("x = n\\pi (n \\in \\mathbb{Z})", "k")
    (('2k\\pi', 'k'), ('x = k\\pi', 'k'))
    """
    if "\\in" not in text and "integer" not in text:
        return text, ""
    plain = _UPRIGHT.sub(r" \1 ", text)
    match = _DECLARED.search(plain, max(0, len(plain) - _TAIL))
    if match is None:
        return text, ""
    name, rest = match[1] or match[2], plain[: match.start()].rstrip()
    if not _alone(name).search(rest):
        return text, ""
    if letter and letter != name and not _alone(letter).search(rest):
        return _alone(name).sub(letter, rest), letter
    return rest, name


def _alone(name: str) -> re.Pattern[str]:
    """The letter where it is a name and no part of a word or a command."""
    return re.compile(rf"(?<![A-Za-z\\]){name}(?![A-Za-z])")
