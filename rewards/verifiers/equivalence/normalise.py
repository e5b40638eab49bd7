"""Text clean-up that never changes a value: look-alike signs, delimiters, wrappers, final punctuation.

Works on strings only; knows nothing of trees. What cannot be cleaned safely (zero-width characters or digits
of other scripts inside an answer) is left in, so that the tokenizer refuses it.
"""

from __future__ import annotations

import re

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₐₑₙₓ", "0123456789+-()aenx", strict=True))
_VULGAR = {
    **{"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5)},
    **{"⅗": (3, 5), "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8)},
    **{"⅞": (7, 8), "⅐": (1, 7), "⅑": (1, 9), "⅒": (1, 10)},
}
_GREEK_LETTERS = dict(
    zip(
        "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ",
        [
            "alpha",
            "beta",
            "gamma",
            "delta",
            "epsilon",
            "zeta",
            "eta",
            "theta",
            "iota",
            "kappa",
            "lambda",
            "mu",
            "nu",
            "xi",
            "pi",
            "rho",
            "sigma",
            "tau",
            "upsilon",
            "phi",
            "chi",
            "psi",
            "omega",
            "Gamma",
            "Delta",
            "Theta",
            "Lambda",
            "Xi",
            "Pi",
            "Sigma",
            "Phi",
            "Psi",
            "Omega",
        ],
        strict=True,
    )
)
_SIGNS = {
    **dict.fromkeys("−–—‐‑‒﹣－", "-"),
    **{"×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "∗": "*", "÷": r"\div ", "⁄": "/"},
    **{"∕": "/", "√": r"\sqrt ", "∛": r"\sqrt[3] ", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap "},
    **{"∖": r"\setminus ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne "},
    **{"≈": r"\approx ", "∈": r"\in ", "∉": r"\notin ", "∅": r"\emptyset ", "±": r"\pm ", "∓": r"\mp "},
    **{"°": r"^{\circ}", "º": r"^{\circ}", "∠": r"\angle ", "′": "'", "’": "'", "‘": "'", "…": r"\ldots "},
    **{"ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}"},
    **{"∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "≡": r"\equiv ", "→": r"\to ", "ℏ": r"\hbar "},
    **{"⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "⟨": r"\langle "},
    **{"⟩": r"\rangle ", "“": '"', "”": '"', "∧": r"\wedge "},
    **dict.fromkeys(
        "\xa0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000\t\r\n\x0c\x0b", " "
    ),
    **{"（": "(", "）": ")", "［": "[", "］": "]", "，": ",", "．": ".", "：": ":", "；": ";", "＝": "="},
    **{"＋": "+", "＊": "*", "／": "/", "％": "%", "＜": "<", "＞": ">", "｛": "{", "｝": "}", "｜": "|"},
    **{chr(0xFF10 + d): str(d) for d in range(10)},
}
_TABLE = str.maketrans(
    {
        **_SIGNS,
        **{sign: rf"\frac{{{n}}}{{{d}}}" for sign, (n, d) in _VULGAR.items()},
        **{letter: f"\\{name} " for letter, name in _GREEK_LETTERS.items()},
    }
)
_RAISED = re.compile("[" + re.escape("".join(_SUPERSCRIPTS)) + "]+")
_LOWERED = re.compile("[" + re.escape("".join(_SUBSCRIPTS)) + "]+")
_DOUBLED = re.compile(
    r"(?<!\\)\\\\(?=(?:begin|end|[dtc]?frac|sqrt|left|right|text|boxed|cdot|times|pi|leq?|geq?|infty|cup|quad|circ|"
    r"theta|pm|ldots|mathrm|sin|cos|tan|log|ln)(?![A-Za-z]))"
)
_INVISIBLE_ENDS = "\u200b\u200c\u200d\u2060\ufeff\u200e\u200f\u00ad"
_SPACED = re.compile(r"\s+")
_LOOSE = re.compile(r"(?<![\w.,\\)}\]]) +| +(?![\w.,\\({\[])")
_TURN_END = re.compile(r"(?:<\|[a-z_]{2,20}\|>|</s>)\s*\Z")
_LABEL = re.compile(
    r"\\text\s*\{\s*(?:the\s+)?(?:final\s+|correct\s+)?answer\s*(?:is\b|:)\s*:?\s*\}\s*|(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|value|result|solution)\s*(?:is\b|[:=]|(?=\\[\[(]|\$))\s*:?\s*",
    re.IGNORECASE,
)
_MONEY = re.compile(r"\A([-+]?\s?)\$\s?([0-9.][^$]*)\Z")
"""One dollar sign before a number, closed by none: an amount of money."""
_BOLD = re.compile(
    r"(?<![\w)}\]*])\*\*(?=[^\s*])([^*]+)(?<=\S)\*\*(?![\w({\[*])|(?<!\w)__(?=[^\s_])([^_]+)(?<=\S)__(?!\w)"
)


def raise_scripts(text: str) -> str:
    """Superscript and subscript characters as ^{...} and _{...}, before any other mapping can lose them."""
    text = _RAISED.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m.group()) + "}", text)
    return _LOWERED.sub(lambda m: "_{" + "".join(_SUBSCRIPTS[c] for c in m.group()) + "}", text)


def clean(text: str) -> str:
    """An answer as bare mathematics: ASCII signs, no delimiters, no outer wrappers, no final punctuation."""
    text = _TURN_END.sub("", text.strip()).strip(_INVISIBLE_ENDS)
    if not text.isascii():
        text = raise_scripts(text).translate(_TABLE)
    if "\\\\" in text and _DOUBLED.search(text):
        text = text.replace("\\\\", "\\")
    text = _SPACED.sub(" ", text)
    if "*" in text or "__" in text:
        text = _BOLD.sub(lambda m: m.group(1) or m.group(2), text)
    label = _LABEL.match(text)
    text = text[label.end() :] if label else text
    if "$" in text:
        text = _MONEY.sub(r"\1\\$\2", text)
    if "$" in text or "\\(" in text or "\\[" in text or "\\)" in text or "\\]" in text:
        text = _SPACED.sub(" ", drop_delimiters(text))
    return strip_end(text)


def drop_delimiters(text: str) -> str:
    """Dollar signs and \\( \\) \\[ \\] become spaces; a row break \\\\[2pt] and an escaped dollar stay."""
    out: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        if char == "\\" and index + 1 < len(text):
            following = text[index + 1]
            if following in "()[]":
                out.append(" ")
            else:
                out.append(char + following)
            index += 2
            continue
        out.append(" " if char == "$" else char)
        index += 1
    return "".join(out)


def strip_end(text: str) -> str:
    """Without the punctuation that closes a sentence; a factorial's mark and an ellipsis stay."""
    text = text.strip()
    while text:
        shorter = text
        if text.endswith(("\\ ", "\\,", "\\;", "\\!", "\\:")):
            shorter = text[:-2]
        elif (
            text[-1] in ",;:?"
            or (text[-1] == "." and not text.endswith(("..", "\\right.")))
            or (text.endswith("\\") and not text.endswith("\\\\"))
        ):
            shorter = text[:-1]
        elif text.endswith("\\\\"):
            shorter = text[:-2]
        shorter = shorter.rstrip()
        if shorter == text:
            return text
        text = shorter
    return text


def squeeze(text: str) -> str:
    """A key for equal strings: spaces kept only between characters that they separate."""
    for long, short in (("\\left", ""), ("\\right", ""), ("dfrac", "frac"), ("tfrac", "frac")):
        if long in text:
            text = re.sub(re.escape(long) + r"(?![a-z])", short, text)
    return _LOOSE.sub("", _SPACED.sub(" ", text))


def words_of(text: str, *, keep_marks: bool = False) -> str:
    """The text as plain words: \\text{...} unwrapped, spaces evened out, quotes and punctuation dropped."""
    text = re.sub(
        r"\\(?:text(?:bf|it|rm|tt|sf)?|mathrm|mathbf|mbox|textnormal|operatorname)\s*\{([^{}]*)\}",
        r"\1",
        text,
    )
    text = re.sub(r"\\[,;:! ]|~", " ", text)
    if keep_marks:
        return " ".join(text.split()).strip("{}")
    text = re.sub(r"[\"`]|(?<=\w)[,;:!?](?=\s|$)|(?<=\w)\.(?=\s|$)", " ", text)
    return " ".join(text.split()).strip("{}")
