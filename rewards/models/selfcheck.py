"""Refuses, when a reward model is loaded, one that would score wrongly without a word.

Every check runs the real path on a small example: steps and tags are counted, the head's weights are known to
come from the checkpoint (rewards.models.heads), padding must change nothing, and a stored example must give
its stored values. Knows what to tell the user; knows nothing of how values are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rewards.errors import ConfigError
from rewards.models.conventions import Convention, WorkedExample
from rewards.models.rendering import Rendered, Renderer, special_id

QUESTION = "A box holds 3 red and 4 blue balls. How many balls do 5 boxes hold?"
STEPS = (
    "One box holds 3 + 4 = 7 balls.",
    "Five boxes hold 5 * 7 = 35 balls.",
    "So the answer is \\boxed{35}.",
)
TOLERANCE: Mapping[str, float] = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 1e-1}
"""How far two values of one text may lie apart, relative to values above 1, by the numbers computed in."""

Values = Callable[[Sequence[Rendered]], list[tuple[float, ...]]]


def check_rendering(renderer: Renderer) -> None:
    """Tags = steps, each a token of its own and read there, also where the question spells the tag; bos at
    most once.

    Raises:
        ConfigError: saying which does not hold and what to change.
    """
    convention = renderer.convention
    steps = list(STEPS) if convention.kind == "process" else ["\n\n".join(STEPS)]
    for question in (QUESTION, f"{QUESTION} {convention.tag} {renderer.tokenizer.eos_token or ''}"):
        rendered = renderer.render(question, steps)
        if len(set(rendered.reads)) != len(steps) or list(rendered.reads) != sorted(rendered.reads):
            raise ConfigError(
                f"{len(steps)} steps are read at {len(set(rendered.reads))} positions: the tag "
                f"{convention.tag!r} does not make a token of its own; set tokenise=alone or another tag"
            )
        if rendered.overrun:
            raise ConfigError(
                f"the token at the end of step {rendered.overrun[0] + 1} reaches past it: this tokenizer "
                f"joins {convention.tag or 'the end of a step'!r} with what follows; set tokenise=alone"
            )
        _check_tag(renderer, rendered)
        if not all(0 <= read < len(rendered.ids) for read in rendered.reads):
            raise ConfigError(f"offset={convention.offset}: a read lies outside of the input; set offset=0")
    bos = special_id(renderer.tokenizer.bos_token_id)
    if bos is not None and rendered.ids[:2] == (bos, bos):
        raise ConfigError("the input begins with bos twice: the chat template writes it; set bos=false")


def check_vocabulary(renderer: Renderer, rows: int) -> None:
    """Every token that an input can hold has a row of the embedding.

    Special tokens beyond it, such as a pad that was added later, do no harm: texts never hold them.

    Args:
        renderer: of the model's tokenizer.
        rows: of the embedding.

    Raises:
        ConfigError: naming the first token without one.
    """
    steps = example_of(renderer.convention)[1]
    used = max(renderer.render(QUESTION, steps).ids)
    vocabulary = renderer.tokenizer.get_vocab()
    beyond = sorted(
        (number, token)
        for token, number in vocabulary.items()
        if number >= rows and (number == used or not renderer.breaks_up(token))
    )
    if beyond:
        raise ConfigError(
            f"the tokenizer has {len(beyond)} tokens without a row of the embedding, which has {rows} (the "
            f"first is {beyond[0][1]!r}, id {beyond[0][0]}): expected the model's own tokenizer; where "
            "tokens were added to it, resize the embedding and train it"
        )


def check_padding(renderer: Renderer, values: Values, dtype: str) -> None:
    """A text's values must not depend on what it is batched with: pad ids, also where pad is eos, are masked.

    Raises:
        ConfigError: when they do.
    """
    steps = list(STEPS) if renderer.convention.kind == "process" else ["\n\n".join(STEPS)]
    row = renderer.render(QUESTION, steps)
    longer = renderer.render(QUESTION * 3, [*steps, *steps] if len(steps) > 1 else [steps[0] * 2])
    (alone,) = values([row])
    padded = values([row, longer])[0]
    if not all(map(math.isfinite, alone)):
        raise ConfigError(
            f"the model gives {alone} for a plain text: its weights are broken, or overflow {dtype}"
        )
    if not _close(alone, padded, dtype):
        raise ConfigError(
            f"padding changes the values of a text from {_show(alone)} to {_show(padded)}: the model does "
            "not keep to its attention mask; set attention=eager, or tokens_per_batch=1 "
            "to score without padding"
        )


def check_example(renderer: Renderer, values: Values, example: WorkedExample | None, dtype: str) -> None:
    """A stored example must give its stored values.

    Raises:
        ConfigError: when it does not: weights, tokenizer or convention are not those it was saved with.
    """
    if example is None:
        return
    (found,) = values([renderer.render(example.question, example.steps)])
    if len(found) != len(example.values) or not _close(found, example.values, dtype):
        rounded = f", or {dtype} is too coarse for it, which dtype=fp32 would tell" if dtype != "fp32" else ""
        raise ConfigError(
            f"the stored example gives {_show(found)}, stored is {_show(example.values)}: weights, tokenizer "
            "or convention are not those that the model was saved with; take all files from one place"
            + rounded
        )


def example_of(convention: Convention) -> tuple[str, tuple[str, ...]]:
    """The question and the steps that a worked example of a new model is made from."""
    return QUESTION, STEPS if convention.kind == "process" else ("\n\n".join(STEPS),)


def _check_tag(renderer: Renderer, rendered: Rendered) -> None:
    """A tag is one token, not spread over several, joined with the step before, or unknown.

    Tokenised alone it may be several: those are the same in every input.
    """
    convention, tokenizer = renderer.convention, renderer.tokenizer
    if convention.read_at != "tag":
        return
    read = rendered.ids[rendered.reads[0] - convention.offset]
    unknown = read == tokenizer.unk_token_id and convention.tag != tokenizer.unk_token
    if rendered.split or (unknown and convention.tag_id is None):
        raise ConfigError(
            f"the tag {convention.tag!r} is no token of its own in this tokenizer (it would be read at "
            f"{tokenizer.convert_ids_to_tokens(read)!r}): expected the tokenizer that the model was trained "
            "with; for a tag of several tokens set tokenise=alone, or take another tag"
        )


def _close(left: Sequence[float], right: Sequence[float], dtype: str) -> bool:
    return all(abs(a - b) <= TOLERANCE[dtype] * max(1.0, abs(b)) for a, b in zip(left, right, strict=True))


def _show(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)
