"""What the letters of an answer mean: names, functions, connectives, units or plain words.

Turns the raw tokens "letters" (plain) and "words" (from \\text{...}) into the tokens the parser reads.
"""

from __future__ import annotations

import re

from rewards.verifiers.equivalence import lexicon as lx
from rewards.verifiers.equivalence.lex import LexError, Token, tokenize

_PIECE = re.compile(r"[A-Za-z][A-Za-z'-]*(?:\.[A-Za-z]+)*\.?|[0-9][0-9,.]*|[(),;:$%/^-]|[¢]")
_FORMULA = re.compile(r"\\[a-zA-Z]{2}|[\^_=]")
_NESTED = re.compile(r"\\(?:text|math|mbox|hbox|operatorname|rm)")
_NO_LETTERS = re.compile(r"[^A-Za-z]+\Z")
_TIMES = frozenset({"min", "sec", "in"})
"""Units that are functions, or a relation, anywhere but behind a number."""
_VALUE_ENDS = frozenset({"num", "close", "name", "const", "word", "bar"})


def unit_of(word: str) -> tuple[str, str] | None:
    """(dimension, unit) of a unit's written name, singular or plural; None for any other word."""
    for form in (word, word.lower(), word.rstrip("."), word.lower().removesuffix("s")):
        if form in lx.UNIT_NAMES:
            return lx.UNIT_NAMES[form]
    return None


def resolve(tokens: list[Token]) -> list[Token]:
    """Tokens with every run of letters given its meaning by the table and by its neighbours."""
    out: list[Token] = []
    for index, token in enumerate(tokens):
        before = out[-1] if out else None
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        if token.kind == "letters" and _is_prose(tokens, index):
            out.extend(_known(token) or [Token("word", token.text, token.spaced)])
        elif token.kind == "letters":
            out.extend(_plain(token, before, after))
        elif token.kind == "words":
            out.extend(_upright(token, out))
        else:
            out.append(token)
    return out


def _is_prose(tokens: list[Token], index: int) -> bool:
    """True for a run of letters that is all there is, or one of several set apart by spaces."""
    if len(tokens) == 1:
        return len(tokens[0].text) > 2
    near = [tokens[at] for at in (index - 1, index + 1) if 0 <= at < len(tokens)]
    runs = [token for token in near if token.kind == "letters" and len(token.text) > 1]
    return len(tokens[index].text) > 1 and bool(runs)


def _known(token: Token) -> list[Token] | None:
    """The meaning of letters by the tables alone; None where they have none."""
    word, spaced = token.text, token.spaced
    connective = _connective(word.lower(), spaced)
    if connective is not None:
        return [connective]
    if word in lx.FUNCTIONS and word not in lx.LATEX_ONLY_FUNCTIONS:
        return [Token("func", lx.FUNCTIONS[word], spaced)]
    if word in lx.PLAIN_CONSTANTS:
        return [Token("const", lx.CONSTANTS.get(word, word), spaced)]
    return [Token("name", word, spaced)] if word in lx.PLAIN_GREEK else None


def _is(token: Token | None, text: str) -> bool:
    return token is not None and token.text == text and token.kind == "op"


def _plain(token: Token, before: Token | None, after: Token | None) -> list[Token]:
    word, spaced = token.text, token.spaced
    if _is(before, "_") and len(word) > 1 and not spaced:
        return [Token("name", word)]
    if len(word) == 1:
        union = word == "U" and before is not None and before.kind == "close" and _opens(after)
        return [Token("op", "union", spaced)] if union else [Token("name", word, spaced)]
    if before is not None and before.kind == "num" and not spaced and word in ("st", "nd", "rd", "th"):
        return []  # 12th: the letters only say that the number counts places
    if word in _TIMES and before is not None and before.kind == "num" and not _opens(after):
        return [Token("word", word, spaced)]
    known = _known(token)
    if known is not None:
        return known
    if before is not None and before.kind in _VALUE_ENDS and (unit_of(word) or word in lx.MULTIPLES):
        return [Token("word", word, spaced)]
    split = _split(word, spaced)
    if split is not None:
        return split
    if (word.lower() in lx.STOP_WORDS and not word.isupper()) or (
        len(word) > 3 and not (word.isupper() and len(word) <= 5)
    ):
        return [Token("word", word, spaced)]
    return [Token("name", letter, spaced and not at) for at, letter in enumerate(word)]


def _opens(token: Token | None) -> bool:
    return token is not None and token.kind == "open"


def _connective(word: str, spaced: bool) -> Token | None:
    meaning = lx.WORDS.get(word)
    if meaning is None:
        return None
    kind = {"and": "join", "or": "join", "in": "rel"}.get(meaning, "op")
    return Token(kind, meaning, spaced)


def _split(word: str, spaced: bool) -> list[Token] | None:
    """xsin, sinx, pir: a function or pi glued to at most two letters."""
    for size in (1, 2):
        head, tail = word[:size], word[size:]
        if tail in lx.FUNCTIONS and len(tail) > 1 and tail not in lx.LATEX_ONLY_FUNCTIONS:
            names = [Token("name", c, spaced and not at) for at, c in enumerate(head)]
            return [*names, Token("func", lx.FUNCTIONS[tail])]
        head, tail = word[:-size], word[-size:]
        if head in lx.FUNCTIONS and len(head) > 1 and head not in lx.LATEX_ONLY_FUNCTIONS:
            return [Token("func", lx.FUNCTIONS[head], spaced), *[Token("name", c) for c in tail]]
    return None


def _measures(out: list[Token]) -> bool:
    """True where a unit can come next: behind a value, a unit, or a sign between units."""
    if out and out[-1].kind == "op" and out[-1].text in "*/" and len(out) > 1:
        return out[-2].kind in ("word", "close") and any(token.kind == "word" for token in out)
    return bool(out) and out[-1].kind in ("num", "close", "word")


def _upright(token: Token, out: list[Token]) -> list[Token]:
    before = out[-1] if out else None
    text = " ".join(token.text.replace("~", " ").replace("\\", "").split())
    spaced = token.spaced or token.text[:1] == " "
    if not text:
        return []
    if _is(before, "_"):
        return [Token("name", text)]
    if text in lx.UNIT_NAMES and _measures(out):
        return [Token("word", text, spaced)]
    if len(text) == 1 and text.isalpha():
        return [Token("name", text, spaced)]
    if text in lx.FUNCTIONS:
        return [Token("func", lx.FUNCTIONS[text], spaced)]
    if _NO_LETTERS.match(text):
        return tokenize(text)
    if _FORMULA.search(token.text) and not _NESTED.search(token.text):
        return resolve(tokenize(token.text))
    pieces: list[Token] = []
    at = 0
    while at < len(text):
        if text[at] == " ":
            at += 1
            continue
        match = _PIECE.match(text, at)
        if match is None:
            raise LexError(f"unknown sign in words: {text[at]!r}")
        pieces.append(_piece(match.group(), spaced or at > 0))
        at = match.end()
    return pieces


def _piece(piece: str, spaced: bool) -> Token:
    if piece[0].isdigit():
        return Token("num", piece.replace(",", ""), spaced)
    if len(piece) == 1 and not piece.isalpha():
        kind = {"(": "open", ")": "close", ",": "comma", ";": "semi"}.get(piece, "op")
        return Token(kind, piece, spaced)
    return _connective(piece.lower(), spaced) or Token("word", piece, spaced)
