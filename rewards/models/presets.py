"""The conventions of public reward models, by name.

Each is what the model's own inference code or card does, as far as that can be told as data; where a choice
was left open by it, the comment says what was taken. What a preset cannot know (the weights' path) is asked
for in `ModelSettings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rewards.errors import ConfigError
from rewards.models.conventions import Convention
from rewards.options import suggest

_REASON_STEP_BY_STEP = "Please reason step by step, and put your final answer within \\boxed{}."

PRESETS: Mapping[str, Convention] = MappingProxyType(
    {
        # Qwen/Qwen2.5-Math-PRM-7B, -72B: a two-layer head at a special token behind each paragraph.
        "qwen2.5-math-prm": Convention(
            kind="process",
            layout="chat",
            system=_REASON_STEP_BY_STEP,
            tag="<extra_0>",
            head="classes",
            positive_index=1,
            activation="softmax",
            aggregation="product",
            strategy="blank_line",
        ),
        # peiyi9979/math-shepherd-mistral-7b-prm: + against - at a Cyrillic word.
        "math-shepherd": Convention(
            kind="process",
            layout="plain",
            after_question=" ",
            step_label="Step {n}: ",
            step_join="\n",
            before_tag=" ",
            tag="ки",
            bos=True,
            head="vocabulary",
            positive_token="+",
            negative_token="-",
            activation="softmax",
            aggregation="min",
        ),
        # RLHFlow/Llama3.1-8B-PRM-*: a user turn for each step, read where the assistant's + is predicted.
        "rlhflow-prm": Convention(
            kind="process",
            layout="turns",
            after_question=" ",
            tag="+",
            offset=-1,
            head="vocabulary",
            positive_token="+",
            negative_token="-",
            activation="softmax",
            aggregation="mean",
            strategy="blank_line",
        ),
        # RLHFlow/Llama3.1-8B-ORM-*: the same with the whole solution in one user turn.
        "rlhflow-orm": Convention(
            kind="outcome",
            layout="turns",
            after_question=" ",
            tag="+",
            offset=-1,
            head="vocabulary",
            positive_token="+",
            negative_token="-",
            activation="softmax",
        ),
        # Skywork/Skywork-o1-Open-PRM-Qwen-2.5-*: lines tokenised one by one, a value head at their newlines.
        "skywork-o1-prm": Convention(
            kind="process",
            layout="plain",
            after_question="\n",
            tag="\n",
            tokenise="alone",
            bos=True,
            head="scalar",
            head_name="v_head.summary",
            activation="sigmoid",
            aggregation="mean",
            strategy="newline",
        ),
        # Skywork/Skywork-Reward-* and other sequence classifiers with a chat template, read at the end.
        "skywork-reward": Convention(kind="outcome", layout="chat", read_at="end", head="scalar"),
        # Qwen/Qwen2.5-Math-RM-72B: the same with its system prompt.
        "qwen2.5-math-rm": Convention(
            kind="outcome", layout="chat", system=_REASON_STEP_BY_STEP, read_at="end", head="scalar"
        ),
        # A sequence classifier without template: question, newline, completion, eos.
        "sequence-classifier": Convention(
            kind="outcome",
            layout="plain",
            after_question="\n",
            bos=True,
            eos=True,
            read_at="end",
            head="scalar",
        ),
        # trl's PRMTrainer: token classification at the last separator token, pieces tokenised one by one.
        "trl-prm": Convention(
            kind="process",
            layout="plain",
            tag="\n",
            tokenise="alone",
            bos=True,
            head="classes",
            positive_index=1,
            activation="softmax",
            aggregation="min",
        ),
        # PURE: the same with blank lines, p1 - p0, and its soft minimum.
        "pure-prm": Convention(
            kind="process",
            layout="plain",
            after_question="\n",
            tag="\n\n",
            tokenise="alone",
            head="classes",
            positive_index=1,
            activation="difference",
            aggregation="soft_min",
            strategy="blank_line",
        ),
        # ImplicitPRM, EurusPRM: the log-ratio of two causal models over each step, beta from the cards.
        "implicit-prm": Convention(
            kind="process",
            layout="chat",
            step_join="\n\n",
            read_at="step",
            head="log_ratio",
            beta=0.001,
            activation="sigmoid",
            aggregation="min",
            strategy="blank_line",
        ),
    }
)


def preset(name: str) -> Convention:
    """The convention of that name.

    Raises:
        ConfigError: naming the nearest that exists.
    """
    if name not in PRESETS:
        raise ConfigError(
            f"model.convention={name}: expected one of {', '.join(PRESETS)}, or null to read the folder's own"
            f"{suggest(name, PRESETS)}"
        )
    return PRESETS[name]
