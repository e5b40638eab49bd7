"""Which sampled tokens wrote which characters: from step spans in a text to token indices.

Knows only token ids and the function that decoded them, so it is exact for any tokenizer: bytes, characters
over several tokens, special tokens that print nothing. Text is never encoded again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

from rewards.types import StepScore

Decode = Callable[[Sequence[int]], str]
"""Token ids -> text, as the text was written for the scorers (same treatment of special tokens)."""

REPLACEMENT = "\ufffd"
"""What decoders print for bytes that are not, or not yet, a character."""
LONGEST_WAIT = 8
"""Tokens after which a window that still disagrees with the text is given up: twice the longest character."""


def token_char_ends(token_ids: Sequence[int], text: str, decode: Decode) -> list[int]:
    """For each token, how many characters of the text are settled once it has been decoded.

    Entry t is the length of the longest common prefix of `decode(token_ids[:t + 1])` and the text, never less
    than the entry before: a character written by several tokens counts from its last token on, and a token
    that prints nothing repeats the entry before it. Time is linear in the number of tokens, except for
    decoders with a long memory and texts full of broken bytes, where it is quadratic and still exact.

    Args:
        token_ids: (n,) sampled ids, stop tokens included.
        text: what the scorers saw: the decoded ids, with or without what trailing stop tokens print.
        decode: the function that wrote the text, with the same settings.

    Raises:
        ValueError: when the decoded ids do not begin with the text.

    >>> token_char_ends([72, 105, 0], "Hi", lambda ids: "".join(chr(i) for i in ids if i))
    [1, 2, 2]
    """
    if not decode(token_ids).startswith(text):
        raise ValueError(f"the text {text[:60]!r} is not the beginning of the decoded token ids")
    pieces = {token: decode([token]) for token in set(token_ids)}
    if REPLACEMENT not in text and "".join(pieces[token] for token in token_ids).startswith(text):
        ends = accumulate(len(pieces[token]) for token in token_ids)
        return [min(end, len(text)) for end in ends]
    windowed = _windowed_char_ends(token_ids, text, decode)
    return _prefix_char_ends(token_ids, text, decode) if windowed is None else windowed


def steps_to_token_ends(steps: Sequence[StepScore], char_ends: Sequence[int]) -> list[int]:
    """The index of the last token of each step.

    A token that writes the end of one step and the start of the next belongs to both. The last step reaches
    the final token, so that a stop token or a trailing newline is paid like the step before it. A step that
    ends before the first character has no token: -1.

    Args:
        steps: ordered, disjoint spans in the text that `char_ends` describes.
        char_ends: (n,) from `token_char_ends`.

    Raises:
        ValueError: when a step ends after the text.

    >>> steps_to_token_ends([StepScore(0, 2, 1.0), StepScore(2, 3, 0.0)], [1, 2, 3, 3])
    [1, 3]
    """
    length = char_ends[-1] if char_ends else 0
    if steps and steps[-1].end > length:
        raise ValueError(f"{steps[-1]} ends after the {length} characters of the text")
    ends = [bisect_left(char_ends, step.end) if step.end else -1 for step in steps]
    return [*ends[:-1], len(char_ends) - 1] if ends else []


def _prefix_char_ends(token_ids: Sequence[int], text: str, decode: Decode) -> list[int]:
    """The definition itself: decodes every prefix."""
    settled = (_common_prefix(decode(token_ids[: t + 1]), text) for t in range(len(token_ids)))
    return list(accumulate(settled, max))


def _windowed_char_ends(token_ids: Sequence[int], text: str, decode: Decode) -> list[int] | None:
    """The same from short windows of tokens; None when a window cannot be made to agree with the text.

    A window is the tokens of `base`, already settled, and those after them. `base` prints something, so that
    what a decoder does to the start of a text (dropping a leading space) happens inside it and cancels out.
    """
    ends: list[int] = []
    start, fresh, settled, base = 0, 0, 0, ""
    for t in range(len(token_ids)):
        window = decode(token_ids[start : t + 1])
        piece = window[len(base) :]
        expected = text[settled : settled + len(piece)]
        ends.append(settled + _common_prefix(piece, expected))
        if not (window.startswith(base) and piece.startswith(expected)) or piece.endswith(REPLACEMENT):
            if t - fresh >= LONGEST_WAIT:
                return None
            continue
        settled = ends[-1]
        printed = decode(token_ids[fresh : t + 1])
        start, base = (fresh, printed) if printed else (start, window)
        fresh = t + 1
    return list(accumulate(ends, max)) if not ends or ends[-1] == len(text) else None


def _common_prefix(left: str, right: str) -> int:
    """Length of the longest common prefix."""
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return i
    return min(len(left), len(right))
