"""HTML files that need nothing beside them: no scripts, no links; every text in them is escaped.

Knows pages and tables, nothing of what is told.
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
_MAX_CHARS = 2000


def write_page(path: str, title: str, body: Iterable[str]) -> None:
    """Writes a page of pieces of HTML; title: a plain text. Makes the folder where it is missing."""
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page, encoding="utf-8")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts."""
    head = "".join(f"<th>{text(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def text(plain: str) -> str:
    """A plain text for a page: controls as escapes, markup as text.

    >>> text("<b>1\\x07</b>")
    '&lt;b&gt;1\\\\x07&lt;/b&gt;'
    """
    return escape(visible(plain, _MAX_CHARS))
