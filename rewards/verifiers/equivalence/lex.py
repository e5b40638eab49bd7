"""One tokenizer for LaTeX and plain input: text in, typed tokens out, or LexError.

Every character must be accounted for: an unknown command or sign is an error, never skipped, so that no
formula is ever judged by a part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rewards.verifiers.equivalence import lexicon as lx
from rewards.verifiers.equivalence.settings import MAX_DIGITS, MAX_TOKENS


class LexError(ValueError):
    """The text holds something that is no notation we read."""


@dataclass(frozen=True, slots=True)
class Token:
    """A kind (num, letters, words, cmd, op, rel, open, ...), its text, and whether a space came before."""

    kind: str
    text: str
    spaced: bool = False


_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]+|\.(?![.0-9]))?|\.[0-9]+)(?:[eE][+-]?[0-9]+(?![0-9.A-Za-z]))?")
_GROUPED = re.compile(
    r"[0-9]{1,3}(?:(?:,| ?\{, ?\} ?|,\\! ?|\\,|\{\\,\}|\\ | |~|\{ \}|\\;)[0-9]{3})+(?![0-9])"
    r"(?!(?:,|\{,\})[0-9])(?:\.[0-9]+)?"
)
_NO_DIGIT = re.compile(r"[^0-9.]")
_COMMA_DECIMAL = re.compile(r"[0-9]+(?:,|\{,\})[0-9]+(?![0-9,])")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_COLOUR_MODEL = re.compile(r"\s*\[[A-Za-z]+\]")
_INVISIBLE = re.compile(
    r"(?i)\s*(?:white(?:!.*)?|transparent|#?f{6}|1(?:\.0*)?(?:,\s*1(?:\.0*)?){2}|(?:255,\s*){2}255)\s*"
)
_WORD = re.compile(r"[A-Za-z]+")
_SYMBOLS = {
    **{"+": "op", "*": "op", "/": "op", "^": "op", "_": "op", "!": "op", "'": "op", "%": "op", ":": "op"},
    **{"-": "op", "=": "rel", "<": "rel", ">": "rel", ",": "comma", ";": "semi", "&": "amp", "|": "bar"},
    **{"(": "open", "[": "open", "{": "open", ")": "close", "]": "close", "}": "close"},
}
_CURRENCIES = {"£": "pound sterling", "€": "euro", "¥": "yen", "₹": "rupee"}
_PAIRS = ("**", "<=", ">=", "!=", "==", "<>")
_OPENERS = frozenset("([")


class Lexer:
    """Reads one string; state is the position, the tokens so far and the depth of written brackets."""

    def __init__(self, text: str, *, thousands: bool = True, decimal_comma: bool = False) -> None:
        self.text = text
        self.at = 0
        self.spaced = False
        self.depth = 0
        self.thousands = thousands
        self.decimal_comma = decimal_comma
        self.tokens: list[Token] = []

    def run(self) -> list[Token]:
        """All tokens of the text; raises LexError."""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " ~":
                self.spaced = True
                self.at += 1
            elif char == "\\":
                self._backslash()
            elif char in "0123456789" or (char == "." and self.text[self.at + 1 : self.at + 2].isdigit()):
                self._number()
            elif char.isascii() and char.isalpha():
                self._word()
            else:
                self._sign(char)
            if len(self.tokens) > MAX_TOKENS:
                raise LexError("too many tokens")
        return self.tokens

    def _emit(self, kind: str, text: str) -> None:
        self.tokens.append(Token(kind, text, self.spaced))
        self.spaced = False

    def _number(self) -> None:
        if self.thousands and self.depth == 0:
            match = _GROUPED.match(self.text, self.at)
            if match and not self._after_number() and not self._divided(match):
                self.at = match.end()
                self._emit("num", _NO_DIGIT.sub("", match.group()))
                return
        if self.decimal_comma and self.depth == 0:
            match = _COMMA_DECIMAL.match(self.text, self.at)
            if match:
                self.at = match.end()
                self._emit("num", match.group().replace("{,}", ".").replace(",", "."))
                return
        match = _NUMBER.match(self.text, self.at)
        if match is None or len(match.group()) > MAX_DIGITS:
            raise LexError("number too long or malformed")
        self.at = match.end()
        self._emit("num", match.group())

    def _after_number(self) -> bool:
        """True where a number or a comma directly precedes: a list such as 1,234,5 has no thousands."""
        return bool(self.tokens) and self.tokens[-1].kind == "comma" and not self.spaced

    def _divided(self, match: re.Match[str]) -> bool:
        """1 101/105 is a mixed number, no 1101 over 105: spaces do not group before a slash."""
        return "," not in match.group() and self.text[match.end() :].lstrip().startswith("/")

    def _word(self) -> None:
        match = _WORD.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        self._emit("letters", match.group())

    def _sign(self, char: str) -> None:
        pair = self.text[self.at : self.at + 2]
        if self.text.startswith("...", self.at):
            self.at += 3
            self._emit("dots", "...")
            return
        if pair in _PAIRS and not (pair == "!=" and self._factorial_equals()):
            self.at += 2
            kind = "rel" if pair[0] in "<>!=" else "op"
            text = "^" if pair == "**" else pair
            self._emit(kind, lx.RELATIONS.get(text, text))
            return
        if char in _CURRENCIES:
            self.at += 1
            self._emit("currency", _CURRENCIES[char])
            return
        kind = _SYMBOLS.get(char)
        if kind is None:
            raise LexError(f"unknown sign U+{ord(char):04X}")
        self.depth += (char in "([") - (char in ")]")
        self.at += 1
        self._emit(kind, char)

    def _factorial_equals(self) -> bool:
        """5!=120 is a factorial and an equality; a != b is a relation: told apart by the space before it."""
        before = self.tokens[-1].kind if self.tokens else ""
        return before == "num" and self.text[self.at - 1] != " "

    def _backslash(self) -> None:
        match = _COMMAND.match(self.text, self.at)
        if match is None:
            self._escape(self.text[self.at + 1 : self.at + 2])
            return
        name = match.group(1)
        known = name  # a command may have been glued to the letters behind it: \\lex is \\le x
        while known and known not in lx.KNOWN_COMMANDS:
            known = known[:-1]
        if len(known) < 2 or len(name) - len(known) > 2:
            raise LexError(f"unknown command \\{name}")
        self.at += 1 + len(known)
        self._command(known)

    def _escape(self, char: str) -> None:
        self.at += 2
        if char == "\\":
            skip = re.compile(r"\*?\s*\[[0-9.]+\s*(?:pt|em|ex|mm|cm)\]").match(self.text, self.at)
            self.at = skip.end() if skip else self.at
            self._emit("row", "\\\\")
        elif char in ",;:! >" or not char:
            self.spaced = True
        elif char in "{}":
            self.depth += 1 if char == "{" else -1
            self._emit("open" if char == "{" else "close", "\\" + char)
        elif char == "$":
            self._emit("currency", "dollar")
        elif char in "%&#_":
            self._emit("op", char)
        elif char == "|":
            self._emit("bar", "||")
        else:
            raise LexError(f"unknown escape \\{char}")

    def _command(self, name: str) -> None:
        if name in ("left", "right", "mleft", "mright") and self.text[self.at : self.at + 1] == ".":
            self.at += 1
            self._emit("close" if name.endswith("right") else "open", ".")
            return
        if name in ("left", "right", "mleft", "mright") and self.text[self.at : self.at + 1] in "{}":
            # \left{ is a set's brace written without its backslash
            self.text = self.text[: self.at] + "\\" + self.text[self.at :]
            return
        if name in lx.SPACING:
            self.spaced = True
        elif name in lx.TEXTS:
            self._emit("words", self._argument())
        elif name in ("begin", "end"):
            self._environment(name)
        elif name in ("mathbb", "Bbb"):
            self._emit("const", self._argument().strip())
        elif name in ("color", "textcolor"):
            self._colour()
        elif name in ("hspace", "vspace", "tag", "label", "phantom"):
            raise LexError(f"\\{name} hides or moves text")
        elif name in lx.BRACKETS:
            self._bracket(lx.BRACKETS[name])
        elif name in lx.CONSTANTS:
            self._emit("const", lx.CONSTANTS[name])
        elif name in lx.FUNCTIONS:
            self._emit("func", lx.FUNCTIONS[name])
        elif name in lx.GREEK:
            self._emit("const" if name == "pi" else "name", name)
        elif name in lx.RELATIONS:
            self._emit("rel", lx.RELATIONS[name])
        elif name in lx.OPERATORS:
            text = lx.OPERATORS[name]
            self._emit({"dots": "dots", "and": "join", "or": "join"}.get(text, "op"), text)
        else:
            self._emit("cmd", name)

    def _colour(self) -> None:
        """A colour changes nothing, unless it makes the text invisible."""
        skip = _COLOUR_MODEL.match(self.text, self.at)
        self.at = skip.end() if skip else self.at
        if _INVISIBLE.fullmatch(self._argument()):
            raise LexError("text in the colour of the page")

    def _bracket(self, sign: str) -> None:
        if sign in ("|", "||"):
            self._emit("bar", sign)
        elif sign in ("{", "}"):
            self._emit("open" if sign == "{" else "close", "\\" + sign)
        elif sign.startswith(("floor", "ceil")):
            self._emit("open" if sign.endswith("(") else "close", sign)
        else:
            self._emit("open" if sign in "([" else "close", sign)

    def _environment(self, which: str) -> None:
        name = self._argument().strip()
        if name not in lx.ENVIRONMENTS:
            raise LexError(f"unknown environment {name!r}")
        if which == "begin" and name == "array":
            match = re.compile(r"\s*\{[lcr|@{}\s]*\}").match(self.text, self.at)
            self.at = match.end() if match else self.at
        self._emit(which, name)

    def _argument(self) -> str:
        """The raw text of a braced argument, or the next single character."""
        at = self.at
        if self.text[at : at + 1] == "*":
            at += 1
        while self.text[at : at + 1] == " ":
            at += 1
        if self.text[at : at + 1] != "{":
            raise LexError("argument expected in braces")
        depth = 0
        for index in range(at, len(self.text)):
            depth += (self.text[index] == "{") - (self.text[index] == "}")
            if depth == 0:
                self.at = index + 1
                return self.text[at + 1 : index]
        raise LexError("unbalanced braces")


def tokenize(text: str, *, thousands: bool = True, decimal_comma: bool = False) -> list[Token]:
    """Tokens of a cleaned text; raises LexError. thousands reads 12,345 outside brackets as one number."""
    return Lexer(text, thousands=thousands, decimal_comma=decimal_comma).run()
