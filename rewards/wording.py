r"""The words around an answer: what denies, doubts or replaces it, makes it rough or sets it against another.

One table of words, and every question that rewards.prose, rewards.later, rewards.choices and rewards.text ask
about them. Belief commits to a value ("I think", "my guess is", "probably 4"); possibility ("maybe 4", "4?")
and disbelief ("I doubt that it is 4") do not. Reads text beside a position; knows nothing of golds. Every
search is bounded by `_NEAR` characters or is one pass over the text.
"""

from __future__ import annotations

import re

from rewards.writing import same_writing

_NEAR = 80  # characters beside an answer in which the words about it stand
_MANY = 32  # turns, denials and contrasts from the end that are looked at

# The table. Verbs and nouns that may stand between such a word and the value are in _FILLERS.
_NOT = r"(?:\b(?:not|never|neither|nor|cannot|anything\s+but|different\s+from|no\s+longer)|n[’']t)\b"
_UNEQUAL = r"\b(?:than|no\s+more)\b"
_WRONG = r"\b(?:wrong|incorrect|mistaken|bogus|bad)\b"
_MAYBE = r"\b(?:maybe|perhaps|possibly)\b"
_CAN = r"\b(?:could|may|might)\b"
_DISBELIEF = (
    r"(?:(?<!no\s)(?<!without\s)(?<!without\sa\s)(?<!beyond\s)\bdoubt(?:ful)?|\bunlikely|\bunsure"
    r"|\bnot\s+(?:sure|certain|convinced)|(?:n[’']t|\bnot)\s+(?:think|believe))\b"
)
_ABOUT = r"(?:\b(?:about|around|approximately|roughly|nearly|almost|close\s+to)\b|\bapprox\b\.?|≈|~)"
_APPLIED = (
    r"\b(?:twice|double|triple|half(?:\s+of)?|minus|negative|(?:square|cube)\s+root\s+of"
    r"|(?:opposite|reciprocal)\s+of)\b"
)
_INSTEAD = r"(?:not|never|rather\s+than|instead\s+of|as\s+opposed\s+to)\b"
_NOUN = r"(?:answers?|results?|values?|solutions?|guess|box)\b"
_FINAL = r"(?:(?:final|correct|right|real|true|actual)\s+)?"
_SURELY = (
    r"(?:(?:clearly|obviously|definitely|certainly|actually|simply|just|to\s+be|of\s+course|all|quite|"
    r"the|a|an|my)\s+)*"
)
_FILLERS = r"(?:[\s,]+(?:be|equals?|equal|to|is|the|a|final|answer|value)\b)*"

# What a text says another's answer is: to the end of the sentence, decimal points aside.
_REFERENCE = re.compile(
    r"(?i)\b(?:the\s+)?(?:(?:reference|golden|gold|official)\s+(?:answer|solution|label)s?|ground[- ]truth)\b"
    r"(?:[^.。\n]|[.。](?!\s|$))*[.。]?"
)
_MAY_REFER = re.compile(r"[rRgGoO](?<!\w.)(?i:eference|old|fficial|round)")

# What may stand between words and the value itself.
OPENERS = r"(?:[\s$*({\[\"'“~_:]|\\[(\[]|\\text\s*\{)*"
_CLOSERS = r"(?:[\s$*)}\]\"'”~_]|\\[)\]])*"
_NAMED = rf"(?:[a-z]\w{{0,2}}(?:\([^()\n]{{0,8}}\))?\s*=\s*)?{OPENERS}"
_VALUE = r"(\$[^$\n]{1,60}\$|\\\([^\n]{1,60}?\\\)|[-+−]?[0-9.,/]{0,20}[0-9](?:\s?%)?)"

_DENIED_BEFORE = re.compile(
    rf"(?i)(?:{_NOT}{_FILLERS}|\\neq?(?![A-Za-z])|≠){OPENERS}{_NAMED}$"
    rf"|{_WRONG}(?:\s*:|\s+(?:(?:final|but|tempting)\s+)?{_NOUN}\s*(?:(?:is|was|would\s+be)\b)?){OPENERS}$"
    rf"|{_DISBELIEF}(?:\s+(?!(?:but|so|yet|as|and|because|since|still)\b)[A-Za-z’']+){{0,8}}[\s$*(\\]*$"
)
_CHANGED_BEFORE = re.compile(rf"(?i)(?:{_UNEQUAL}|{_APPLIED}){_FILLERS}{OPENERS}{_NAMED}$")
_DENIED_AFTER = re.compile(
    rf"(?i){_CLOSERS}(?:\\text\s*\{{)?[.,;:—–-]?\s*(?:\(\s*)?(?:(?:but|and|which|that|this|it|the\s+answer)\s+)*"
    rf"(?:(?:is|was|would\s+be|seems|turns\s+out|isn[’']t|wasn[’']t)\s+)?{_SURELY}"
    rf"(?:{_WRONG}|ruled\s+out\b|not\s+(?:the\s+|my\s+)?{_FINAL}"
    r"(?:right|correct|true|valid|answer|solution|it)\b|(?<=n[’']t\s)(?:the\s+)?(?:right|correct|answer|it)\b)"
)
_DENIAL_AHEAD = re.compile(rf"(?i)(?:\w+ly\s+)?(?:{_NOT}|unlikely\b|no\s+more\b|\w+er\s+than\b)")
_UNSTATED = re.compile(rf"(?i){_NOT}|{_CAN}|{_MAYBE}")
_DOUBTED_BEFORE = re.compile(
    rf"(?i)(?:{_CAN}\s+(?:also\s+|well\s+|perhaps\s+)*be\b|{_MAYBE}(?:\s+(?:it|that|the\s+answer)\s+(?:is|was|equals)\b)?){OPENERS}$"
)
_DOUBTED_AFTER = re.compile(rf"{_CLOSERS}\?")
_DOUBT_INSIDE = re.compile(
    rf"\?[\s$}})*\]]*\Z|(?i:{_MAYBE}|\b(?:ish|not\s+sure|i\s+guess)\b)|[0-9](?i:ish)\b"
)
_ROUGH_BEFORE = re.compile(rf"(?i){_ABOUT}[\s$*({{\[]*$")
_ROUGH_AFTER = re.compile(
    rf"(?i){_CLOSERS}(?:-?ish\b"
    r"|(?:\s*[a-z]+)?[ ,]*\b(?:or\s+so|or\s+thereabouts|more\s+or\s+less|give\s+or\s+take)\b)"
)
_STRUCK = re.compile(r"\\(?:[bx]?cancel|cancelto|sout)(?![A-Za-z])|~~\s*[^~\s]")
# A mark that is a piece of a longer formula goes on: \boxed{4}2, \boxed{4}(2), \boxed{4}^2 or \boxed{4} + 1,
# or began before: 2\boxed{4}, -\boxed{4}, 1/\boxed{4} or \sqrt{\boxed{4}}; degrees are no power.
_OPERATION = r"(?:[-+−/×·÷]|\*(?!\*)|\\(?:cdot|times|div)(?![A-Za-z]))"
_GOES_ON = re.compile(rf"[0-9]|\(\s*[-+]?[0-9.]+\s*\)|[ \t}}]*(?:\^(?!\{{?\\circ)|{_OPERATION}[ \t]*[0-9])")
_BEGAN = re.compile(
    r"(?:[0-9]|(?<![\w*-])[-−]|[\w)\]}][ \t]*(?:[/^×·÷]|\*(?<!\*\*)|\\(?:cdot|times|div)[ \t]*)"
    r"|\\(?:sqrt|[dtc]?frac)\s*(?:\[[^\]]{0,9}\])?\{(?:[^{}]{0,40}\}\s*\{)?)\Z"
)
_ROW = re.compile(
    r"(?i)(?:[\s.,;:*_$!?|&/(){}\[\]~#—–-]|\\[()\[\],;]|\\text|\\q?quad|</?answer>"
    rf"|{_MAYBE}|\b(?:and|or|also|alternatively|either|another|else|again|too|as\s+well"
    r"|the|a|my|final|answer|option|possible)\b)*"
)
_TURN = re.compile(
    r"(?i)\b(?:no,?\s+wait|wait,?\s+(?:no|actually)|correction|(?:i\s+)?(?:actually\s+)?meant|scratch\s+that|"
    r"take\s+(?:that|it)\s+back|"
    r"on\s+(?:second\s+thought|reflection)|my\s+mistake|oops|sorry|alternatively|actually|rather)\b"
)
_FIRM = re.compile(r"(?i)no,?\s+wait|wait,?\s+no\b|correction\b|\bmeant|scratch|take\s")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;,\n—–(]|\b(?:or|and|but|so))[\s*_$\])}]*$")
_LEAD = re.compile(
    r"(?i)(?:[\s:：,;.!*_—–-]|\b(?:sorry|no|i|think|meant?|to\s+say|the|correct|right|final|real|true|answer|"
    r"result|value|it|that|this|should|must|have|been|is|be|was|its|would|option|choice|actually|rather|so|"
    r"wait|oops)\b|[’']s\b)*"
)
_CONCLUSION = re.compile(
    r"(?i)(?:[.!?\n][\s$*)\]]*|\b(?:so|thus|therefore|hence|consequently|finally|overall|but)\b,?\s+)"
    rf"(?:(?:the\s+)?{_FINAL}(?:result|value|solution|total|outcome|number)\s+(?:is|was|equals?)"
    r"|(?:it|this|that)\s+(?:is|equals|should\s+(?:be|have\s+been))|it[’']s|we\s+(?:get|obtain|find))\s*:?\s+"
)
_DISOWNED = re.compile(
    rf"(?i)\b(?:that|this|it|which|above|answer)(?:\s+(?:is|was)|[’']s)\s+(?:\w+ly\s+)?"
    rf"(?:{_WRONG}|not\s+(?:right|correct|true|the\s+(?:final\s+)?answer)\b)"
)
_DENIES = re.compile(rf"(?i)\b(?:is|was|be)(?:\s+not|n[’']t)\s+{OPENERS}")
_SET_ASIDE = re.compile(rf"(?i)\b{_INSTEAD}\s+\**{_VALUE}\**(?:\s+[a-z]+)?(?=\s*(?:[.,;:)!\n]|\Z))")
_SET_AGAINST = re.compile(
    rf"(?i){_VALUE}\**(?:\s+(?!(?:is|are|was|were|do|does|did|can|could|will|would|should|may|might|has|have)\b)"
    rf"[a-z]+)?[\s,;(—–-]+(?:(?:and|but)\s+)?{_SURELY}\Z"
)
_NOT_BUT = re.compile(rf"(?i)\bnot\s+{_VALUE}\s*,?\s+but\s+(?:rather\s+)?(?={OPENERS}{_VALUE})")
_YES_OR_NO = re.compile(r"(?i)(?:\A|\n)[\s*]*(?:yes|no)[\s*]*[.,;:!—–-][\s*$]*\Z")


def without_reference(text: str) -> str:
    """The text with what it says of another's answer blanked out."""
    if not _MAY_REFER.search(text):
        return text
    return _REFERENCE.sub(lambda quoted: " " * len(quoted[0]), text)


def is_denied(text: str, start: int, end: int, *, loose: bool = False) -> bool:
    r"""Whether the words beside text[start:end] deny it: "not \boxed{4}", "\boxed{4} is wrong".

    loose: the value is no marked answer, so that "more than 4" and "twice 4" deny it too.
    """
    before = text[max(0, start - _NEAR) : start]
    if loose and _CHANGED_BEFORE.search(before):
        return True
    return bool(_DENIED_BEFORE.search(before) or _DENIED_AFTER.match(text[end : end + _NEAR]))


def is_denial_ahead(text: str, start: int) -> bool:
    """Whether what starts here denies a value: "not 4", "clearly not 4", "greater than 4"."""
    return _DENIAL_AHEAD.match(text, start) is not None


def is_doubted(text: str, start: int, end: int) -> bool:
    """Whether the words beside text[start:end] make a possibility of it: "could be 4", "perhaps 4", "4?"."""
    before = text[max(0, start - _NEAR) : start]
    return bool(_DOUBTED_BEFORE.search(before) or _DOUBTED_AFTER.match(text[end : end + _NEAR]))


def is_rough(text: str, start: int, end: int) -> bool:
    """Whether the words beside text[start:end] say that it is not exact: "about 4", "4 or so"."""
    before = text[max(0, start - _NEAR) : start]
    return bool(_ROUGH_BEFORE.search(before) or _ROUGH_AFTER.match(text[end : end + _NEAR]))


def states_value(marker: str) -> bool:
    """Whether an announcement states its answer, and neither denies nor doubts it."""
    return _UNSTATED.search(marker) is None


def is_half_said(answer: str) -> bool:
    r"""Whether an answer strikes itself out or asks: `\cancel{4}`, `~~4~~`, `4?`, `4\text{ish}`."""
    return bool(_STRUCK.search(answer) or _DOUBT_INSIDE.search(answer))


def is_glued(text: str, start: int, end: int) -> bool:
    r"""Whether text[start:end] is a piece of a longer value: `\boxed{4}2`, `\boxed{4}^2`, `-\boxed{4}`."""
    before = text[max(0, start - _NEAR) : start]
    return bool(_GOES_ON.match(text, end) or _BEGAN.search(before))


def is_row(between: str) -> bool:
    """Whether only white space, punctuation, "and", "or", "alternatively" stand between two answers."""
    return len(between) <= 2 * _NEAR and _ROW.fullmatch(between) is not None


def answers_twice(before: str) -> bool:
    """Whether a yes or a no stands right before a value on its line: two answers to one question."""
    return _YES_OR_NO.search(before[-_NEAR:]) is not None


def without_contrast(text: str) -> str:
    """The text with the values that it sets aside blanked out: "42, not 41" and "not 41, but 42" say 42."""
    aside = [match.span() for match in _NOT_BUT.finditer(text)]
    for match in list(_SET_ASIDE.finditer(text))[-_MANY:]:
        stated = _SET_AGAINST.search(text, max(0, match.start() - _NEAR), match.start())
        if stated and not same_writing(stated[1], match[1]):
            aside.append((stated.end(1), match.end()))
    return _blanked(text, aside) if aside else text


def _blanked(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with spaces in these spans, in one pass."""
    pieces: list[str] = []
    at = 0
    for start, end in sorted(spans):
        pieces += (text[at:start], " " * (end - max(at, start)))
        at = max(at, end)
    return "".join((*pieces, text[at:]))


def turns(text: str, start: int) -> list[tuple[int, int, bool]]:
    """Where the text from start on turns to another answer: "Correction: 41", "Sorry, I meant 41".

    Each as (start of the turn, where the new answer would stand, whether the words take back for certain).
    """
    found: list[tuple[int, int, bool]] = []
    for match in _TURN.finditer(text, start):
        lead = _LEAD.match(text, match.end(), match.end() + _NEAR)
        firm = _FIRM.search(text, match.start(), lead.end() if lead else match.end())
        opens = _SENTENCE_START.search(text[max(0, match.start() - 8) : match.start()])
        if not (firm or opens or match.start() == start):
            continue
        found.append((match.start(), lead.end() if lead else match.end(), firm is not None))
    return found[-_MANY:]


def conclusions(text: str, start: int) -> list[tuple[int, int]]:
    """Where the paragraph from start on concludes, "So the result is 41": (start, where the value stands)."""
    end = text.find("\n\n", start)
    found = _CONCLUSION.finditer(text, start, len(text) if end < 0 else end)
    return [(match.start(), match.end()) for match in found][-_MANY:]


def is_disowned(text: str, start: int) -> bool:
    """Whether the text from start on calls what stood before it wrong."""
    return _DISOWNED.search(text, start, start + 4 * _NEAR) is not None


def denials(text: str, start: int) -> list[int]:
    """Where values stand that the text from start on denies: "it is not 42"."""
    return [match.end() for match in _DENIES.finditer(text, start)][-_MANY:]
