"""Tables of the notation: commands, functions, constants, words and units. Data only."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


GREEK = _names(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "omicron rho varrho sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda "
    "Xi Pi Sigma Upsilon Phi Psi Omega hbar ell nabla partial angle triangle square star "
    "odot oplus otimes dagger aleph imath jmath flat sharp"
)
"""Symbols written as commands in LaTeX and, but for the short ones, as words in plain text."""

PLAIN_GREEK = frozenset(name for name in GREEK if len(name) > 2) - {
    "partial",
    "nabla",
    "ell",
    "angle",
    "triangle",
    "square",
    "star",
    *("odot", "oplus", "otimes", "dagger", "aleph", "imath", "jmath", "flat", "sharp"),
}

FUNCTIONS: dict[str, str] = {
    **{n: n for n in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "sech")},
    **{f"arc{n}": f"a{n}" for n in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")},
    **{f"ar{n}": f"a{n}" for n in ("sinh", "cosh", "tanh")},
    **{f"a{n}": f"a{n}" for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{n: n for n in ("exp", "gcd", "lcm", "max", "min", "floor", "ceil", "det", "lg", "arg", "deg", "sgn")},
    **{"csch": "csch", "cosec": "csc", "tg": "tan", "ctg": "cot", "arctg": "atan", "arcctg": "acot"},
    **{"ln": "ln", "log": "log", "sign": "sgn", "ceiling": "ceil", "abs": "abs", "binomial": "binom"},
    **{"factorial": "factorial", "Re": "re", "Im": "im", "re": "re", "im": "im"},
    **{"sqrt": "sqrt", "cbrt": "cbrt", "Pr": "Pr", "dim": "dim", "ker": "ker", "tr": "tr"},
}
"""Written name -> name in the tree."""

LATEX_ONLY_FUNCTIONS = frozenset({"deg", "arg", "re", "im", "tr", "lg", "Re", "Im", "tg", "ker", "dim"})
"""Names that are functions as \\operatorname{...} but symbols or words when written plainly."""

CONSTANTS: dict[str, str] = {
    **{"pi": "pi", "infty": "oo", "infinity": "oo", "Infinity": "oo", "inf": "oo", "oo": "oo"},
    **{"emptyset": "empty", "varnothing": "empty", "exponentialE": "e", "imaginaryI": "i"},
}
PLAIN_CONSTANTS = frozenset({"pi", "infinity", "Infinity", "inf", "infty", "oo"})

RELATIONS: dict[str, str] = {
    **{"=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "<>": "!="},
    **{"le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "lt": "<"},
    **{"gt": ">", "ne": "!=", "neq": "!=", "approx": "~", "simeq": "~", "sim": "~", "in": "in"},
    **{
        "notin": "notin",
        "equiv": "equiv",
        "leqq": "<=",
        "geqq": ">=",
        "subset": "subset",
        "thickapprox": "~",
    },
    **{"cong": "cong", "propto": "propto", "doteq": "~", "subseteq": "subset", "coloneqq": "="},
    **{"parallel": "parallel", "perp": "perp", "mid": "mid", "nmid": "nmid", "nin": "notin"},
}

OPERATORS: dict[str, str] = {
    **{"cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "pm", "mp": "mp", "cup": "union"},
    **{"bigcup": "union", "cap": "inter", "bigcap": "inter", "setminus": "minus", "backslash": "minus"},
    **{"bmod": "mod", "mod": "mod", "colon": ":", "degree": "deg", "circ": "circ", "prime": "'"},
    **{"bullet": "*", "centerdot": "*", "smallsetminus": "minus", "lor": "or", "vee": "or", "wedge": "and"},
    **{"land": "and", "ldots": "dots", "dots": "dots", "cdots": "dots", "dotsc": "dots", "vdots": "dots"},
    **{
        "dotsb": "dots",
        "choose": "choose",
        "over": "over",
        "to": "to",
        "rightarrow": "to",
        "cupdot": "union",
    },
}

SPACING = _names(
    "quad qquad enspace thinspace displaystyle textstyle scriptstyle limits nolimits left right big "
    "Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr mleft mright middle hfill noindent "
    "normalsize large Large small nonumber hline ensuremath medspace thickspace negthinspace bigm "
    "Bigm allowbreak"
)

WRAPPERS = _names(
    "mathbf mathit mathsf mathtt mathcal mathscr boldsymbol bm mathnormal displaylimits emph "
    "underline mathfrak cancel uline bold pmb mathring"
)
"""Commands whose argument is mathematics that keeps its meaning."""

TEXTS = _names(
    "text textbf textit textrm texttt textsf mbox hbox textnormal textup textsc mathrm operatorname "
    "rm operatorname* textmd"
)
"""Commands whose argument is words, or a name set upright."""

ACCENTS = _names("vec overline bar hat widehat tilde widetilde overrightarrow dot ddot overset")

BRACKETS: dict[str, str] = {
    **{"lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]", "langle": "(", "rangle": ")"},
    **{"lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "lparen": "(", "rparen": ")"},
    **{"lfloor": "floor(", "rfloor": "floor)", "lceil": "ceil(", "rceil": "ceil)"},
    **{"llcorner": "floor(", "lrcorner": "floor)", "ulcorner": "ceil(", "urcorner": "ceil)"},
    **{"Vert": "||", "lVert": "||", "rVert": "||"},
}

NUMBER_SETS = frozenset("RNZQC")

ENVIRONMENTS = _names(
    "matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix array cases aligned align align* "
    "gathered split equation equation*"
)

KNOWN_COMMANDS = (
    GREEK
    | FUNCTIONS.keys()
    | CONSTANTS.keys()
    | RELATIONS.keys()
    | OPERATORS.keys()
    | SPACING
    | WRAPPERS
    | TEXTS
    | ACCENTS
    | BRACKETS.keys()
    | _names(
        "boxed fbox frac dfrac tfrac cfrac sqrt binom dbinom tbinom sum prod int iint iiint oint lim begin "
        "end neg top bot inj intercal models leadsto lesssim gtrsim prec succ infer "
        "mathbb Bbb stackrel pmod not root of frac overbrace underbrace phantom hspace vspace tag label "
        "color textcolor"
    )
)

WORDS: dict[str, str] = {
    **{"and": "and", "or": "or", "in": "in", "times": "*", "choose": "choose", "union": "union"},
    **{"mod": "mod", "percent": "%", "percentage": "%", "pct": "%", "degrees": "deg", "degree": "deg"},
    **{"intersect": "inter", "U": "U"},
}
"""Words in plain text that are operators."""

PHRASES: dict[str, str] = {
    **dict.fromkeys(("all real numbers", "all reals", "the set of all real numbers"), "R"),
    **dict.fromkeys(("no solution", "no solutions", "no real solution", "no real solutions"), "empty"),
    **dict.fromkeys(("the empty set", "empty set"), "empty"),
}
"""Answers in words that have a sign, and the constant they stand for."""

MULTIPLES: dict[str, int] = {
    **{"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12},
    **{"dozen": 12},
}

_UNITS = """
length mm millimeter millimetre | length cm centimeter centimetre | length m meter metre
length km kilometer kilometre | length in inch inches | length ft foot feet | length yd yard
length mi mile | mass mg milligram | mass g gram gm | mass kg kilogram | mass lb pound | mass oz ounce
time s sec second | time min minute mins | time h hr hour | time day | time week | volume L liter litre
volume mL ml milliliter millilitre | money dollar USD usd buck | money cent | speed mph | speed kph kmh
energy J | energy kJ | energy eV | energy keV | energy MeV | energy GeV | energy kWh | frequency Hz
frequency kHz | frequency MHz | frequency GHz | force N | force kN | power W | power kW | power MW
pressure Pa | pressure kPa | voltage V | temperature K | field T | amount mol | angle rad | length nm
time ms | volume cc | speed rpm
"""
"""Dimension, name of the unit, other written names; plurals are derived."""

UNIT_NAMES: dict[str, tuple[str, str]] = {
    written: (entry.split()[0], entry.split()[1])
    for entry in _UNITS.replace("\n", "|").split("|")
    for written in entry.split()[1:]
}
"""Written name -> (dimension, name of the unit)."""

UNIT_FACTORS: dict[str, tuple[int, int]] = {
    # unit -> (numerator, denominator) in the base unit of its dimension
    **{"mm": (1, 1000), "cm": (1, 100), "m": (1, 1), "km": (1000, 1), "in": (254, 10000)},
    **{"ft": (3048, 10000), "yd": (9144, 10000), "mi": (1609344, 1000), "mg": (1, 1000), "g": (1, 1)},
    **{"kg": (1000, 1), "s": (1, 1), "min": (60, 1), "h": (3600, 1), "day": (86400, 1), "week": (604800, 1)},
    **{"mL": (1, 1000), "L": (1, 1), "cent": (1, 100), "dollar": (1, 1)},
}

GENERIC_UNITS = frozenset({"unit", "units", "square", "cubic", "sq", "cu", "of", "per", "the", "a", "an"})
"""Words around a unit that name none themselves."""

STOP_WORDS = _names(
    "or and not is are was were no nor but then than minus plus times over squared cubed factorial "
    "base if when where for with without either neither both any all none some about approximately "
    "around maybe perhaps less more least most only except wrong correct incorrect false true "
    "undefined yes to from between by half quarter third twice double triple remainder we it this "
    "that cannot because since so answer therefore hence thus which as modulo infinity infinite "
    "negative positive below under above "
    "zero one two three four five six seven eight nine ten halves thirds fourths quarters fifths sixths "
    "sevenths eighths ninths tenths hundredths thousandths hundreds thousands millions billions dozens "
    "opposite inverse reciprocal"
)
"""Words behind a number that may change what is said: never taken for a unit."""
