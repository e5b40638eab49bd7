"""HTML pages of our own: headings, tables and text, all of it escaped; no scripts or links of other sites.

Text of models and data is shown as text: markup is escaped, and controls are written as escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from rewards.compare import visible

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{border:1px solid #ccc;padding:.2rem .6rem;"
    "text-align:left;vertical-align:top}th{background:#f3f3f3}pre{background:#f7f7f7;padding:.5rem;"
    "white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}.figure{font-size:2.4rem;font-weight:600}"
)
_SHOWN_CHARS = 2000


def write_html(path: Path, title: str, body: Iterable[str]) -> None:
    """Writes one whole page.

    Args:
        path: the file; its folder is made.
        title: plain text.
        body: pieces of HTML, such as `table` gives; whoever makes them escapes them.
    """
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{as_text(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts.

    >>> table(["a"], [["<b>"]])
    '<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    head = "".join(f"<th>{as_text(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{as_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def as_text(text: str) -> str:
    """Text for a page: its last 2000 characters, controls as escapes, markup as text."""
    return escape(visible(text, _SHOWN_CHARS))
