"""Pays for staying in one language: the share of words written in the script of the target language.

DeepSeek-R1 (2025, arXiv 2501.12948, section 2.3.2) pays the proportion of target-language words in the chain
of thought. Departures: the whole completion counts, and a language is known by its script alone (Unicode
names), so English and French are one; this is what stops a policy from mixing scripts, which is how the
mixing shows. Formulas, code, LaTeX commands and single letters are no words of any language.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rewards.errors import ConfigError
from rewards.layout import end_of_turn, hide_quoted
from rewards.marks import find_formulas
from rewards.types import Reason, Sample, Score

FROM_PROMPT = "prompt"
SCRIPTS: dict[str, frozenset[str]] = {
    "ar": frozenset({"ARABIC"}),
    "el": frozenset({"GREEK"}),
    "en": frozenset({"LATIN"}),
    "he": frozenset({"HEBREW"}),
    "hi": frozenset({"DEVANAGARI"}),
    "ja": frozenset({"HIRAGANA", "KATAKANA", "CJK", "KATAKANA-HIRAGANA"}),
    "ko": frozenset({"HANGUL"}),
    "ru": frozenset({"CYRILLIC"}),
    "th": frozenset({"THAI"}),
    "zh": frozenset({"CJK"}),
}
"""The scripts of each language, as the first word of Unicode character names."""

_VERSION = "language/1"
_TAG_OR_COMMAND = re.compile(r"<[^<>\s]{1,40}>|\\[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]{2,}|[\u3040-\u30ff\u3400-\u9fff]")
_WITHOUT_SPACES = frozenset({"HIRAGANA", "KATAKANA", "CJK", "KATAKANA-HIRAGANA"})


@dataclass(frozen=True, slots=True)
class LanguageVerifier:
    """Scores in [0, 1]: the share of the completion's words in the script of the target language.

    language: one of SCRIPTS, or "prompt": the script of most of the prompt's words; then a prompt without
    words abstains (NOT_APPLICABLE). A completion without words scores 0.
    """

    language: str = "en"

    def __post_init__(self) -> None:
        valid = (*sorted(SCRIPTS), FROM_PROMPT)
        if self.language not in valid:
            raise ConfigError(f"language={self.language!r}: expected one of {', '.join(valid)}")

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """One Score per sample, in order."""
        return [self._score(sample) for sample in samples]

    def _score(self, sample: Sample) -> Score:
        target = SCRIPTS.get(self.language) or main_scripts(sample.problem.prompt)
        if not target:
            return Score.abstained(Reason.NOT_APPLICABLE, version=_VERSION)
        words = words_by_script(sample.text[: end_of_turn(sample.text)])
        total = sum(words.values())
        inside = sum(count for script, count in words.items() if script in target)
        notes = {"words": f"{inside} of {total}"}
        return Score.scored(inside / total if total else 0.0, Reason.LANGUAGE, version=_VERSION, notes=notes)


def main_scripts(text: str) -> frozenset[str]:
    """The scripts of the language that most words of text are written in; empty for a text without words."""
    words = words_by_script(text)
    if not words:
        return frozenset()
    totals = {
        scripts: sum(words[script] for script in scripts) for scripts in map(frozenset, SCRIPTS.values())
    }
    # Japanese covers Chinese too: of equal totals, the language with fewer scripts.
    best = max(totals, key=lambda scripts: (totals[scripts], -len(scripts)))
    return best if totals[best] else frozenset({max(words, key=lambda script: words[script])})


def words_by_script(text: str) -> Counter[str]:
    """How many words each script has: a run of letters is one, in scripts without spaces each letter is.

    >>> words_by_script("two words, 两个")
    Counter({'LATIN': 2, 'CJK': 2})
    """
    text = _TAG_OR_COMMAND.sub(" ", _without_formulas(hide_quoted(text)))
    counts: Counter[str] = Counter()
    for word, times in Counter(_WORD.findall(text)).items():
        letters = Counter(_script(char) for char in word)
        for script, number in letters.items():
            counts[script] += times * (number if script in _WITHOUT_SPACES else 1)
    return counts


def _without_formulas(text: str) -> str:
    kept: list[str] = []
    at = 0
    for formula in find_formulas(text):
        kept.append(text[at : formula.start])
        at = formula.end
    return " ".join([*kept, text[at:]])


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    return unicodedata.name(char, "UNKNOWN").split()[0]
