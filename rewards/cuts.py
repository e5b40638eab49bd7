r"""Text -> the positions where a step may begin: after blank lines, at headings and list items, at sentences.

Knows layout only: each function yields rising positions at which a line or a sentence starts, without asking
what lies there (a block that must stay whole, a heading). All are linear in the text. A line ends with
`\n` or `\r\n`; a lone `\r` is white space, because in the outputs of models it is what is left of a command
such as `\rho` whose backslash was read as an escape: a cut there would tear the formula.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST_HEADING = 120
"""Characters of a line that may be a heading."""

_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")
_SPACES = re.compile(r"\s++")
_BLOCK_END = re.compile(r"(?:\\\]|\$\$|\\end\{[^{}\n]{1,40}\}|`{3}|~{3})[.,;]?+[^\S\n]*+\n(?=\w)")
_NEWLINES = re.compile(r"\n(?:[^\S\n]*+\n)*+")
_SEMICOLONS = re.compile(r";\s*+")
_STEP_HEADING = re.compile(
    r"^[ \t]{0,3}+[#*_>]{0,6}+[ \t]?+(?:step|Step|STEP)[ \t]?:?[ \t]?\d{1,4}+"
    r"(?=[ \t]?[:.)*_\-–—]|[ \t]*+(?:\n|\Z))",
    re.MULTILINE,
)
_LIST_ITEM = re.compile(r"^[ \t]{0,3}+[*_]{0,2}+(\d{1,3}+)[.)](?=[*_]{0,2}[ \t]+\S)", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?:[.!?][\"'”’)\]*_]{0,4}+\s++|[。！？]\s*+)")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|cf|vs|resp|approx|Dr|Mr|Mrs|Ms|St|Prof|Fig|Figs|Eq|Eqs|Sec|Thm|No|Nos|w\.r\.t)"
    r"|(?:\A|\n)[^\S\n]*+[*_]{0,2}(?:\d{1,3}|[A-Za-z]))\Z"
)
_HEADING = re.compile(
    r"#{1,6}[ \t]+(?![-$\d.,/]*\Z)[^\n]*|[-*_]{3,}"
    r"|(?:\d{1,3}[.)][ \t]+)?(?:\*\*[^\n*]{1,100}(?<![.!?])\*\*|__[^\n_]{1,100}(?<![.!?])__)[:.]?"
    r"|[#*_]{0,6}[ \t]?[Ss]tep[ \t]?:?[ \t]?\d{1,4}[:.)]?[*_]{0,3}[:.]?"
    r"|\\(?:section|subsection|subsubsection|paragraph|textbf)\*?\{[^{}\n]{1,100}\}[:.]?"
)
_LEAD_IN = re.compile(r"[:：][*_]{0,3}\Z")


def blank_line_cuts(text: str) -> Iterator[int]:
    """After one or more blank lines; lines of spaces and CRLF count as blank."""
    return (match.end() for match in _BLANK_LINES.finditer(text))


def newline_cuts(text: str) -> Iterator[int]:
    """After every line that is not blank."""
    return (match.end() for match in _NEWLINES.finditer(text))


def semicolon_cuts(text: str) -> Iterator[int]:
    """After every semicolon and the space behind it."""
    return (match.end() for match in _SEMICOLONS.finditer(text))


def space_cuts(text: str) -> Iterator[int]:
    """After white space."""
    return (match.end() for match in _SPACES.finditer(text))


def step_heading_cuts(text: str) -> Iterator[int]:
    """Before lines such as `Step 3:`, `## Step 3` or `**Step 3.**`; `Step 3 shows` is a sentence."""
    return (match.start() for match in _STEP_HEADING.finditer(text))


def list_item_cuts(text: str) -> Iterator[int]:
    """Items count 1, 2, 3 or begin anew with 1, so that a year or the tail of a decimal is no item."""
    previous = 0
    for match in _LIST_ITEM.finditer(text):
        number = int(match[1])
        if number in (1, previous + 1):
            previous = number
            yield match.start()


def sentence_cuts(text: str) -> Iterator[int]:
    """After the mark that ends a sentence and the space behind it; not in decimals or after abbreviations."""
    for match in _SENTENCE_END.finditer(text):
        at = match.end()
        if at < len(text) and (match[0][0] in "。！？" or _begins_sentence(text[at])):
            before = text[max(0, match.start() - 24) : match.start()]
            decimal = before[-1:].isdigit() and text[at].isdigit()
            if not decimal and not (match[0][0] == "." and _ABBREVIATION.search(before)):
                yield at


def _begins_sentence(character: str) -> bool:
    return character.isupper() or character.isdigit() or character in "$\\\"'“‘([*_#<"


def sentence_line_cuts(text: str) -> Iterator[int]:
    """Lines that end a sentence, before lines that begin one without indentation."""
    return (cut for cut in sentence_cuts(text) if text[cut - 1] == "\n")


def block_line_cuts(text: str) -> Iterator[int]:
    """Lines that begin with a capital right after a formula or code block."""
    return (match.end() for match in _BLOCK_END.finditer(text) if text[match.end()].isupper())


def is_heading(content: str) -> bool:
    """A heading, or the lead-in of a list or formula."""
    if _LEAD_IN.search(content, max(0, len(content) - 8)):
        return True
    return len(content) <= LONGEST_HEADING and _HEADING.fullmatch(content) is not None
