"""Golds: the answer proper is taken out of what a dataset gives, read once, and kept for every sample.

A gold that is no mathematics but plain words is a text gold. Knows nothing of model outputs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from rewards.number_words import leading_number
from rewards.types import Reason
from rewards.verifiers.equivalence.answers import (
    Answer,
    Equation,
    Inequality,
    Items,
    Named,
    Reals,
    Scalar,
    Table,
)
from rewards.verifiers.equivalence.nodes import Const, Node, Num, Op, symbols, walk
from rewards.verifiers.equivalence.normalise import clean, squeeze, words_of
from rewards.verifiers.equivalence.parameters import undeclared
from rewards.verifiers.equivalence.parse import parse
from rewards.verifiers.equivalence.reals import as_reals
from rewards.verifiers.equivalence.settings import MAX_CHARS, EquivalenceSettings
from rewards.verifiers.equivalence.structure import interpret

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_MARK = re.compile(r"####\s*(.+)")
_SAID = re.compile(r"(?is).*\banswer(?:\s+is|\s*:)\s*:?\s*(?=\S)")
_CHOICE = re.compile(r"[(\[]?([A-J])[)\].:]?\Z")
_LABELLED = re.compile(r"\(([A-J])\)\s*\S|([A-J])[.)]\s+\S")
_PERCENT = re.compile(r"[\s$}]*(?:\\%|%|percent\b|pct\b)")
_LEFT, _RIGHT = re.compile(r"\\left(?![A-Za-z])"), re.compile(r"\\right(?![A-Za-z])")
_BETWEEN = 40
"""Most characters between two boxes of a gold that name one answer together."""


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold ready for comparison.

    text is the cleaned gold; key its form for string equality; parsed is None for text and choice golds.
    answer_type is resolved, never "auto"; choices holds the letter of a choice gold.
    """

    text: str
    key: str
    answer_type: str
    parsed: Answer | None = None
    choices: tuple[str, ...] = ()
    count: int = 1
    """How many values must be given: the members of a list, or the entries of the gold."""
    parameter: str = ""
    """The letter that the gold declares to be any integer."""

    @property
    def in_words(self) -> bool:
        """Whether the gold begins with a number in words."""
        return leading_number(words_of(self.text)) is not None


@lru_cache(maxsize=4096)
def prepare_gold(gold: tuple[str, ...], answer_type: str, settings: EquivalenceSettings) -> Gold | Reason:
    """Reads a gold once; returns Reason.NO_GOLD or INVALID_GOLD where it cannot be verified. Never raises."""
    texts = [text for text in gold if text.strip()]
    if not texts:
        return Reason.NO_GOLD
    if len(texts) != len(gold) or any(len(text) > 16 * MAX_CHARS for text in texts):
        return Reason.INVALID_GOLD
    parts = [core for text in texts for core in core_of(text)]
    cleaned = [clean(part) for part in parts]
    if not all(cleaned) or any(len(text) > MAX_CHARS for text in cleaned):
        return Reason.INVALID_GOLD
    if len(cleaned) == 1:
        return _single(cleaned[0], answer_type, settings)
    return _several(cleaned, settings)


def core_of(text: str) -> list[str]:
    """The answers inside a gold: contents of its boxes, tag or marker, else the text itself."""
    tagged = _TAG.findall(text)
    if tagged:
        text = tagged[-1]
    boxes = boxes_of(text)
    if boxes:
        return boxes
    marked = _MARK.findall(text)
    if marked:
        return [marked[-1]]
    said = _SAID.match(text)
    return [text[said.end() :]] if said else [text]


def boxes_of(text: str) -> list[str]:
    """Contents of the last box and of the different boxes that stand close before it, in reading order."""
    found: list[tuple[int, int, str]] = []
    for match in _BOX.finditer(text):
        depth = 1
        for at in range(match.end(), len(text)):
            depth += (text[at] == "{") - (text[at] == "}")
            if depth == 0:
                percent = "\\%" if _PERCENT.match(text, at + 1) else ""
                found.append((match.start(), at + 1, text[match.end() : at].strip() + percent))
                break
    outer = [box for box in found if not any(o[0] < box[0] and box[1] <= o[1] for o in found)]
    kept: list[tuple[int, int, str]] = []
    for box in reversed(outer):
        if kept and kept[-1][0] - box[1] > _BETWEEN:
            break
        kept.append(box)
    contents = [content for _, _, content in reversed(kept)]
    return list(dict.fromkeys(contents))


def _single(text: str, answer_type: str, settings: EquivalenceSettings) -> Gold | Reason:
    if not any(char.isalnum() or char in "\\∞∅{" for char in text):
        return Reason.INVALID_GOLD
    words = words_of(text)
    if not words or (answer_type != "text" and _is_torn(text)):
        return Reason.INVALID_GOLD
    letter = _CHOICE.match(words) or (_LABELLED.match(words) if answer_type in ("auto", "choice") else None)
    if answer_type == "choice" or (answer_type == "auto" and letter):
        if letter is None:
            return Reason.INVALID_GOLD
        chosen = next(group for group in letter.groups() if group)
        return Gold(text, squeeze(text), "choice", choices=(chosen,))
    as_text = Gold(text, squeeze(text), "text")
    if answer_type == "text":
        return as_text
    value, parameter = undeclared(text)
    try:
        node = parse(value, settings, words=True, trusted=True)
        parsed = interpret(node)
    except ValueError:
        return as_text if answer_type == "auto" and not _is_open(text) else Reason.INVALID_GOLD
    if any(_divides_by_zero(part) for part in walk(node)):
        return Reason.INVALID_GOLD
    parsed = _stated(parsed, answer_type)
    if parsed is None:
        return Reason.INVALID_GOLD
    return Gold(text, squeeze(text), type_of(parsed), parsed, count=count_of(parsed), parameter=parameter)


def _is_torn(text: str) -> bool:
    r"""Whether braces, or `\left` and `\right`, are left open."""
    bare = text.replace("\\{", "").replace("\\}", "")
    return bare.count("{") != bare.count("}") or len(_LEFT.findall(text)) != len(_RIGHT.findall(text))


def _is_open(text: str) -> bool:
    """Whether a text without words leaves a bracket open: "a) this" does not count."""
    opened, closed = (sum(map(text.count, signs)) for signs in ("([", ")]"))
    return opened != closed and not any(char.isalpha() for char in text)


def _divides_by_zero(node: Node) -> bool:
    if not isinstance(node, Op) or node.kind != "div":
        return False
    bottom = node.args[1]
    return isinstance(bottom, Num) and bottom.value == 0


def _several(texts: list[str], settings: EquivalenceSettings) -> Gold:
    """Values that must all be given: a list in any order, or, where one is words, the words in this order."""
    joined = ", ".join(texts)
    members: list[Answer] = []
    for text in texts:
        try:
            members.append(interpret(parse(text, settings, words=True, trusted=True)))
        except ValueError:
            return Gold(joined, squeeze(joined), "text", count=len(texts))
    flat = [
        one
        for m in members
        for one in (m.members if isinstance(m, Items) and m.shape in ("bare", "either") else (m,))
    ]
    return Gold(joined, squeeze(joined), "set", Items("bare", tuple(flat)), count=len(flat))


def _stated(parsed: Answer, answer_type: str) -> Answer | None:
    """The answer under the type a dataset states, or None where the two cannot agree."""
    shapes = {"set": "set", "tuple": "round"}
    if answer_type in shapes and isinstance(parsed, Items) and parsed.shape == "bare":
        return replace(parsed, shape=shapes[answer_type])
    if answer_type == "interval" and isinstance(parsed, Items):
        return as_reals(parsed)
    if answer_type == "number" and type_of(parsed) not in ("number", "equation"):
        return None
    return parsed


def type_of(answer: Answer) -> str:
    """The answer type of a typed answer."""
    match answer:
        case Scalar(node=Const(name=name)) if name not in ("pi", "e", "i", "oo"):
            return "set"
        case Scalar(node=node):
            return "expression" if symbols(node) else "number"
        case Named(equation=None, value=value) if not isinstance(value, Scalar):
            return type_of(value)
        case Named() | Equation() | Inequality():
            return "equation"
        case Items(shape="round" | "square"):
            return "tuple"
        case Items():
            return "set"
        case Reals():
            return "interval"
        case Table():
            return "matrix"
        case _:
            return "expression"


def count_of(answer: Answer) -> int:
    """How many values an answer lists."""
    match answer:
        case Named(value=value):
            return count_of(value)
        case Items(shape="bare" | "either" | "set", members=members):
            return len(members)
        case _:
            return 1
