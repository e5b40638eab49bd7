"""How a reward model is fed and read, described as data; the presets are in `rewards.models.presets`.

Knows layouts, tags, heads and activations by name; knows nothing of tokenizers or tensors. A convention can
be written to a model's folder, together with a worked example, so that the folder says how it is used.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_type_hints

from rewards.aggregate import AGGREGATIONS, Aggregation
from rewards.errors import ConfigError
from rewards.options import fits, in_words, suggest
from rewards.steps import STRATEGIES, Strategy

CONVENTION_FILE = "reward_model.json"
"""The file of a model's folder that holds its convention and a worked example."""
FIT_FILE = "fit.json"
"""The report of a fit, in the folder of a model that `rewards.fit` wrote."""

Kind = Literal["outcome", "process"]
Layout = Literal["plain", "chat", "turns"]
Tokenise = Literal["together", "alone"]
ReadAt = Literal["tag", "step", "end"]
Head = Literal["scalar", "classes", "vocabulary", "log_ratio"]
Activation = Literal["none", "sigmoid", "softmax", "difference"]
RatioOver = Literal["step", "prefix"]

_ACTIVATIONS: Mapping[Head, tuple[Activation, ...]] = {
    "scalar": ("none", "sigmoid"),
    "classes": ("softmax", "difference"),
    "vocabulary": ("softmax", "difference"),
    "log_ratio": ("none", "sigmoid"),
}
_FLOORS: Mapping[Activation, float | None] = {
    "none": None,
    "sigmoid": 0.0,
    "softmax": 0.0,
    "difference": -1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    r"""One way of asking a reward model.

    Input. A step is written as step_label + its text without outer white space + before_tag + tag, and steps
    are joined by step_join. An outcome model has one step: the whole completion.

    Args:
        kind: outcome (one value a completion) or process (one a step).
        layout: plain: before_question + question + after_question + steps. chat: the tokenizer's template
            with the question as user turn and the steps as one assistant turn. turns: a user turn for each
            step, the first one question + after_question + step, and the tag as the assistant's answer to it.
        system: the system turn of chat and turns; None writes none.
        before_question: text before the question (plain only).
        after_question: text between the question and the first step (plain and turns).
        step_label: written before each step that does not begin with it; {n} is the step's number, from 1.
        step_join: text between steps (plain and chat).
        before_tag: text between a step and its tag.
        tag: the mark after each step; a string, which may be one of the tokenizer's special tokens.
        tag_id: the mark as a token id instead, for marks that no string gives.
        tokenise: together: the text is tokenised as one. alone: what precedes the steps, every step, every
            tag and what follows are tokenised one by one and their ids concatenated.
        bos: put the tokenizer's bos id, if it has one, in front; off where a chat template writes it.
        eos: put the tokenizer's eos id behind.
        read_at: tag: the last token of each tag. step: of each step. end: of the input.
        offset: added to that position; -1 reads where the tag is predicted.
        head: scalar or classes: layers in the checkpoint under head_name. vocabulary: the output embedding's
            rows of positive_token and negative_token. log_ratio: beta * log(p / p_reference), summed.
        head_name: where the head's tensors are in the checkpoint: NAME.weight, or NAME.0.weight and
            NAME.2.weight for layers with a ReLU between.
        positive_token: the last token of this string says that a step is right (head=vocabulary).
        negative_token: and of this one, that it is wrong.
        positive_index: the class that says so (head=classes).
        negative_index: the class that says that it is wrong, for a head with further classes, such as
            neutral: then all others count as right (ReasonEval's validity). None: only positive_index does.
        beta: the factor of the log-ratio.
        ratio_over: sum the log-ratio over each step, or from the start of the completion to its end.
        activation: softmax: the probability of the positive class; difference: 2 p - 1.
        aggregation: steps -> completion.
        strategy: how completions are cut into steps.
    """

    kind: Kind
    layout: Layout
    system: str | None = None
    before_question: str = ""
    after_question: str = ""
    step_label: str = ""
    step_join: str = ""
    before_tag: str = ""
    tag: str = ""
    tag_id: int | None = None
    tokenise: Tokenise = "together"
    bos: bool = False
    eos: bool = False
    read_at: ReadAt = "tag"
    offset: int = 0
    head: Head = "scalar"
    head_name: str = "score"
    positive_token: str = ""
    negative_token: str = ""
    positive_index: int = 1
    negative_index: int | None = None
    beta: float = 1.0
    ratio_over: RatioOver = "step"
    activation: Activation = "none"
    aggregation: Aggregation = "min"
    strategy: Strategy = "auto"

    def __post_init__(self) -> None:
        problems = [*_choice_problems(self), *_conflicts(self)]
        if problems:
            raise ConfigError("\n".join(f"convention.{problem}" for problem in problems))

    @property
    def floor(self) -> float | None:
        """The lowest value of a step; None where values have no bound."""
        return _FLOORS[self.activation]

    @property
    def has_tag(self) -> bool:
        """Whether a mark follows each step."""
        return bool(self.tag) or self.tag_id is not None


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """A question, a completion in steps, and the values that the model gave to them when it was saved."""

    question: str
    steps: tuple[str, ...]
    values: tuple[float, ...]


def save_convention(folder: Path, convention: Convention, example: WorkedExample | None = None) -> None:
    """Writes CONVENTION_FILE into a model's folder; settings that have their default are left out."""
    defaults = {field.name: field.default for field in dataclasses.fields(Convention)}
    settings = dataclasses.asdict(convention)
    told = {name: value for name, value in settings.items() if value != defaults[name]}
    record: dict[str, object] = {"convention": told}
    if example is not None:
        record["example"] = dataclasses.asdict(example)
    text = json.dumps(record, ensure_ascii=False, indent=1) + "\n"
    (folder / CONVENTION_FILE).write_text(text, encoding="utf-8")


def read_convention(file: Path) -> tuple[Convention, WorkedExample | None]:
    """What `save_convention` wrote.

    Raises:
        ConfigError: for a file that is missing or malformed, naming it and the setting.
    """
    try:
        record: object = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file}: cannot be read ({error}); expected a JSON object with the key convention"
        ) from error
    told = cast(dict[str, Any], record) if isinstance(record, dict) else {}
    settings = told.get("convention")
    if not isinstance(settings, dict):
        raise ConfigError(
            f"{file}: cannot be read; expected a JSON object with the key convention, an object of settings"
        )
    settings = cast(dict[str, Any], settings)
    hints = get_type_hints(Convention)
    problems: list[str] = []
    for name, value in settings.items():
        if name not in hints:
            problems.append(f"{file}: convention.{name}: no such setting{suggest(name, hints)}")
        elif not fits(value, hints[name]):
            problems.append(f"{file}: convention.{name}={value!r}: expected {in_words(hints[name])}")
    problems += [f"{file}: convention.{name}: missing" for name in ("kind", "layout") if name not in settings]
    if problems:
        raise ConfigError("\n".join(problems))
    return Convention(**settings), _read_example(file, told.get("example"))


def differences(left: Convention, right: Convention) -> list[str]:
    """The settings that the values of steps depend on and that differ, as "name='left' and not 'right'".

    >>> plain = Convention(kind="outcome", layout="plain", read_at="end")
    >>> differences(plain, dataclasses.replace(plain, bos=True, strategy="newline"))
    ['bos=False and not True']
    """
    ours, others = dataclasses.asdict(left), dataclasses.asdict(right)
    return [
        f"{name}={value!r} and not {others[name]!r}"
        for name, value in ours.items()
        if value != others[name] and name not in ("aggregation", "strategy")
    ]


def _read_example(file: Path, example: object) -> WorkedExample | None:
    if example is None:
        return None
    told = cast(dict[str, Any], example) if isinstance(example, dict) else {}
    question = told.get("question")
    steps, values = _list_of(str, told.get("steps")), _list_of(float, told.get("values"))
    if not (isinstance(question, str) and steps and values):
        raise ConfigError(
            f"{file}: example: expected question (a text), steps (one or more texts) and values (numbers)"
        )
    return WorkedExample(question, tuple(steps), tuple(map(float, values)))


def _list_of(kind: type, value: object) -> list[Any]:
    """The value where it is a list of that kind, else an empty one."""
    items = cast(list[Any], value) if isinstance(value, list) else []
    return items if all(fits(item, kind) for item in items) else []


def _choice_problems(convention: Convention) -> list[str]:
    choices: Mapping[str, tuple[object, ...]] = {
        "kind": get_args(Kind),
        "layout": get_args(Layout),
        "tokenise": get_args(Tokenise),
        "read_at": get_args(ReadAt),
        "head": get_args(Head),
        "activation": get_args(Activation),
        "ratio_over": get_args(RatioOver),
        "aggregation": tuple(AGGREGATIONS),
        "strategy": tuple(STRATEGIES),
    }
    settings = dataclasses.asdict(convention)
    return [
        f"{name}={settings[name]!r}: expected one of {', '.join(map(str, valid))}"
        for name, valid in choices.items()
        if settings[name] not in valid
    ]


def _conflicts(convention: Convention) -> list[str]:
    c = convention
    allowed = _ACTIVATIONS.get(c.head, ())
    bounded = c.activation in ("sigmoid", "softmax")
    rules = {
        f"activation={c.activation}: head={c.head} takes {' or '.join(allowed)}": c.activation not in allowed,
        "read_at=tag: needs tag or tag_id": c.read_at == "tag" and not c.has_tag,
        "tag and tag_id: give one of them": bool(c.tag) and c.tag_id is not None,
        "layout=turns: needs a tag, the assistant's answer": c.layout == "turns" and not c.tag,
        "layout=turns: expected read_at=tag": c.layout == "turns" and c.read_at != "tag",
        "layout=turns: expected tokenise=together": c.layout == "turns" and c.tokenise != "together",
        "layout=turns: step_join, step_label and before_tag have no place": c.layout == "turns"
        and bool(c.step_join or c.step_label or c.before_tag),
        "read_at=end: one position cannot serve several steps (kind=process)": c.kind == "process"
        and c.read_at == "end",
        f"offset={c.offset}: expected 0 or -1": c.offset not in (0, -1),
        f"positive_index={c.positive_index}: expected >= 0": c.positive_index < 0,
        f"negative_index={c.negative_index}: expected a class (head=classes) beside positive_index": (
            c.negative_index is not None
        )
        and (c.head != "classes" or c.negative_index < 0 or c.negative_index == c.positive_index),
        "head=vocabulary: needs positive_token and negative_token, two different strings": c.head
        == "vocabulary"
        and (not c.positive_token or not c.negative_token or c.positive_token == c.negative_token),
        "aggregation=product: needs probabilities (activation=sigmoid or softmax)": c.kind == "process"
        and c.aggregation == "product"
        and not bounded,
        f"beta={c.beta}: expected > 0 and finite": not 0 < c.beta < math.inf,
        "system: layout=plain has no system turn": c.layout == "plain" and c.system is not None,
    }
    return [message for message, broken in rules.items() if broken]
