"""The parser's place in the token list, with its limits; shared by the grammar's modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rewards.verifiers.equivalence.lex import Token
from rewards.verifiers.equivalence.nodes import Node
from rewards.verifiers.equivalence.settings import MAX_DEPTH

END = Token("end", "")


class ParseError(ValueError):
    """The tokens are no mathematics we read."""


@dataclass(slots=True)
class Cursor:
    """Position in the tokens; expr, product and listing lead back up the grammar."""

    tokens: list[Token]
    expr: Callable[[Cursor], Node]
    product: Callable[[Cursor], Node]
    listing: Callable[[Cursor], Node]
    mixed_numbers: bool = True
    common_log: bool = False
    """True where log without a base is to base 10."""
    trusted: bool = False
    """True for a gold: any words behind its value are read as its unit."""
    at: int = 0
    depth: int = 0
    bars: int = 0
    """Open absolute-value bars in the current brackets."""
    boxed: bool = False
    """True once a box has been entered: a second one would be multiplied."""
    currency: str = ""
    """The currency whose sign stood before a number."""
    opened: int = -1
    """The place of a bar that is to open although it could close, on a second reading."""

    def peek(self) -> Token:
        """The current token, or the end."""
        return self.tokens[self.at] if self.at < len(self.tokens) else END

    def skip_currency(self) -> None:
        """Moves past a currency's sign and remembers it; raises ParseError for a second currency."""
        while self.peek().kind == "currency":
            name = self.take().text
            if self.currency not in ("", name):
                raise ParseError("two currencies")
            self.currency = name

    def ahead(self, steps: int) -> Token:
        """The token steps places on, or the end."""
        at = self.at + steps
        return self.tokens[at] if at < len(self.tokens) else END

    def take(self) -> Token:
        """The current token; moves past it."""
        token = self.peek()
        self.at += 1
        return token

    def is_op(self, *texts: str) -> bool:
        """True where an operator with one of these texts comes next."""
        if self.at >= len(self.tokens):
            return False
        token = self.tokens[self.at]  # not by peek(): this is what a parser asks most often
        return token.kind == "op" and token.text in texts

    def skip_op(self, text: str) -> bool:
        """Moves past the operator if it comes next; says whether it did."""
        if self.is_op(text):
            self.at += 1
            return True
        return False

    def expect(self, kind: str, text: str) -> None:
        """Moves past the token that must come next; raises ParseError where it does not."""
        token = self.take()
        if token.kind != kind or token.text != text:
            raise ParseError(f"expected {text!r}, found {token.text!r}")

    def deeper(self) -> None:
        """Counts one more level of nesting; raises ParseError past the limit."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ParseError("nested too deeply")
