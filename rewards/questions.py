"""When are two questions the same, and which of them are held out?

Equality is by a hash of the text that ignores case, spaces and Unicode form, so that a question of an
evaluation set is found in training data however it was typeset. Knows no data set.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from typing import Protocol, TypeVar

from rewards.errors import ConfigError


class Asked(Protocol):
    """Anything with a question."""

    @property
    def question(self) -> str:
        """The question's text."""
        ...


A = TypeVar("A", bound=Asked)


def question_hash(prompt: str) -> int:
    """64 bits of a question's text, the same for spellings that differ in case, spaces or Unicode form.

    >>> question_hash("What is 1 + 1?") == question_hash("  what is 1+1?\\n")
    True
    """
    folded = unicodedata.normalize("NFKC", prompt).casefold()
    return hash64("".join(folded.split()))


def split_by_question(examples: Sequence[A], share: float, seed: int) -> tuple[list[A], list[A]]:
    """(the rest, held out): all examples of a question fall to the same side.

    A question is held out by a hash of its text and the seed, so whatever else is in the data, and in
    whatever order, changes nothing for it.

    Args:
        examples: any records with a question.
        share: of the questions that are held out, in [0, 1).
        seed: another one holds out other questions.

    Raises:
        ConfigError: for a share outside of [0, 1).
    """
    if not 0 <= share < 1:
        raise ConfigError(f"share={share}: expected the share of questions held out, at least 0 and below 1")
    rest: list[A] = []
    heldout: list[A] = []
    for example in examples:
        place = hash64(f"{seed}:{question_hash(example.question)}") / 2**64
        (heldout if place < share else rest).append(example)
    return rest, heldout


def hash64(text: str) -> int:
    """64 bits of a text, lone surrogates included; the same in every process."""
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )
