"""The letters a completion chooses in a multiple-choice question. Text in, letters out; no judging.

Used only when the gold is a choice. A letter that is an English article ("A polygenic score ...") or a
pronoun is no choice, a denied letter ("not C", "A is wrong") is none, and of several announcements the
last one counts.
"""

from __future__ import annotations

import re

from rewards.wording import is_denied, is_doubted, is_row, turns, without_reference

_WRAPPERS = re.compile(
    r"\\(?:text|textbf|mathrm|mathbf|mathsf|rm|bf|boxed|fbox|mbox|left|right)(?![A-Za-z])|[*_`\"'“”{}$~]"
)
_WIDE = {0xFEE0 + code: code for code in (*b"().,:", *range(ord("A"), ord("Z") + 1))}
_LETTER = re.compile(r"\s*(?:[(\[]\s*([A-Za-z])\s*[)\]]|([A-Z])(?![A-Za-z0-9’+*^=-]))")
_NEXT = re.compile(r"\s*(/|,?\s*or\b|,?\s*and\b|,|;|&|\s)\s*(?=[(\[]?\s*[A-Z](?![A-Za-z0-9’]))")
# After a bare "A" or "I": what shows that it is a letter and not a word of a sentence.
_AFTER_WORD_LETTER = re.compile(
    r"\s*(?:$|[.,:;/)\]!?—–-]|\n|(?:is|because|since|and|or|but|as|for|was|seems|[A-Z])\b)"
)
_STRONG = re.compile(
    r"(?i)\b(?:answers?|options?|choices?|letter|result)\s*(?:is|are|was|would be|must be|should be|[:=：])"
    r"(?!\s*n[o']t\b)"
    r"|答案(?:是|为|：|:)"
)
_IS_CORRECT = re.compile(
    r"(?<![A-Za-z0-9])[(\[]?([A-Z])[)\]]?\s+(?:is|must be|seems)\s+(?:the\s+)?"
    r"(?:most\s+)?(?:correct|right|best|answer|true)\b"
)
_WEAK = re.compile(
    r"(?i)\b(?:choose|select|pick|finali[sz]e|go with|it[’']?s|it is|must be|should be|has to be|be)\b"
    r"(?!\s*n[o']t\b)"
)
_FILLER = re.compile(
    r"(?i)[\s:：]*(?:(?:the|option|choice|answer|letter|indeed|definitely|clearly|for sure|therefore|thus|"
    r"actually|probably|likely|simply|is|correct|final|best|most)\b[\s:：]*){0,6}"
)
_DENIED = re.compile(
    r"(?i)[\s)\]]*(?:is|are|was|were|can|could)\s*(?:not|n[’']?t|wrong|incorrect|false|ruled)|[\s)\]]*(?:isn[’']?t|can[’']?t)\b"
)
_LABEL = re.compile(r"\s*(?:[(\[]\s*([A-Z])\s*[)\]]|([A-Z])\s*[.):])(?![A-Za-z0-9])")
_MORE_LABELS = re.compile(r"[;\n,.]\s*(?:[(\[][A-Z][)\]]|[A-Z][.):])\s")


def choice_in(text: str) -> tuple[str, ...]:
    """The letters that a marked piece (a box, an answer block) consists of or starts with, upper case."""
    return _letters_at(_bare(text), 0)


def announced_choice(text: str, *, announced_only: bool = False) -> tuple[str, ...]:
    """The letters that running text settles on; empty when it settles on none.

    In order: the last "the answer (option, choice) is X"; the last "X is correct"; the last "choose X" or "it
    must be X"; a text that starts with a label ("B) Paris") and lists no other; a last line that is a letter.
    Announcements of different letters in a row, or of three, give all their letters. announced_only: by the
    first of these ways only.
    """
    bare = _bare(without_reference(text))
    found = _last_after(_STRONG, bare)
    if announced_only:
        return found
    if not found:
        named = [match[1] for match in _IS_CORRECT.finditer(bare)]
        found = tuple(named[-1:])
    if not found:
        found = _last_after(_WEAK, bare)
    if not found:
        label = _LABEL.match(bare)
        if label and not _MORE_LABELS.search(bare, label.end()):
            found = (label[1] or label[2],)
    if not found:
        lines = bare.strip().splitlines()
        last = lines[-1].strip() if lines else ""
        if len(last) <= 24:
            found = _letters_at(last, 0, whole=True)
        if found and len(lines) > 1 and (above := _letters_at(lines[-2], 0, whole=True)):
            found = tuple(dict.fromkeys(above + found))
    turned = turned_choice(bare)
    if turned is not None:
        return turned
    return found or _letters_at(f"({bare.strip()})", 0, whole=True)


def _bare(text: str) -> str:
    """The text without emphasis, quotes, math delimiters and text macros."""
    return _WRAPPERS.sub("", text if text.isascii() else text.translate(_WIDE))


def turned_choice(text: str) -> tuple[str, ...] | None:
    """The letters that the last turn of a text takes ("No wait, it is C"); None where it takes none back."""
    bare = _bare(text)
    for _, at, firm in reversed(turns(bare, 0)):
        letters = _letters_at(bare, at)
        if letters or firm:
            return letters
    return None


def _last_after(marker: re.Pattern[str], text: str) -> tuple[str, ...]:
    """The letters after the last occurrence of marker that is followed by any, denied ones left out.

    Together with those of the occurrence before, where the two stand in a row; all, where there are three.
    """
    said: list[tuple[int, int, tuple[str, ...]]] = []
    for match in marker.finditer(text):
        filler = _FILLER.match(text, match.end())
        at = filler.end() if filler else match.end()
        letters = _letters_at(text, at)
        if letters and not _is_taken_back(text, at):
            said.append((match.start(), at, letters))
    if not said:
        return ()
    different = tuple(dict.fromkeys(letter for _, _, letters in said for letter in letters))
    if len({letters for _, _, letters in said}) > 2:
        return different
    if len(said) > 1 and is_row(_LETTER.sub("", text[said[-2][1] : said[-1][0]], count=1)):
        return tuple(dict.fromkeys(said[-2][2] + said[-1][2]))
    return said[-1][2]


def _is_taken_back(text: str, at: int) -> bool:
    """Whether the words around the letter at a position deny or doubt it."""
    letter = _LETTER.match(text, at)
    end = letter.end() if letter else at
    return is_denied(text, at, end) or is_doubted(text, at, end)


def _letters_at(text: str, at: int, *, whole: bool = False) -> tuple[str, ...]:
    """The letters that stand at a position, `B`, `(B)`, `A or B`, `A, C`, without repetition.

    A lower-case letter counts in brackets only. whole: nothing may follow the letters.
    """
    letters: list[str] = []
    while match := _LETTER.match(text, at):
        letter = match[1] or match[2]
        at_end = match.end()
        if match[2] in ("A", "I") and not _AFTER_WORD_LETTER.match(text, at_end):
            break
        if _DENIED.match(text, at_end):
            break
        letters.append(letter.upper())
        at = at_end
        more = _NEXT.match(text, at)
        if not more:
            break
        at = more.end()
    if whole and text[at:].strip(" \t.)]:!"):
        return ()
    return tuple(dict.fromkeys(letters))
