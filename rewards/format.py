r"""The layout of a completion as data: one record writes the system prompt and drives every check.

Knows the tags, the mode of the thought and the style of the answer; knows nothing of chat templates,
tokenizers or scores. `conf/format/*.yaml` are FormatSpecs, so the prompt and the checker cannot disagree:

    spec = FormatSpec(answer_style="tags")
    spec.system_prompt()             # what the policy is told
    spec.prefill_of("...<think>\n")  # what the template already wrote: "<think>\n"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rewards.errors import ConfigError

Mode = Literal["required", "optional", "off"]
AnswerStyle = Literal["free", "boxed", "tags"]


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """The layout one assistant turn must have.

    think_open and think_close may be any strings: text tags or special tokens that were kept while decoding.
    mode: a thought is required, optional, or off (not judged). answer_style: what follows the thought is
    free text, free text with the result in a box, or one block between answer_open and answer_close.
    instruction: replaces the generated system prompt; it must then name the same tags.
    """

    think_open: str = "<think>"
    think_close: str = "</think>"
    mode: Mode = "required"
    answer_style: AnswerStyle = "free"
    answer_open: str = "<answer>"
    answer_close: str = "</answer>"
    instruction: str = ""

    def __post_init__(self) -> None:
        for name, value, valid in (
            ("mode", self.mode, get_args(Mode)),
            ("answer_style", self.answer_style, get_args(AnswerStyle)),
        ):
            if value not in valid:
                raise ConfigError(f"format.{name}={value!r}: expected one of {', '.join(valid)}")
        tags = {
            "think_open": self.think_open,
            "think_close": self.think_close,
            "answer_open": self.answer_open,
            "answer_close": self.answer_close,
        }
        for name, tag in tags.items():
            if not tag or tag != tag.strip():
                raise ConfigError(
                    f"format.{name}={tag!r}: expected a non-empty tag without white space around it"
                )
            for other, other_tag in tags.items():
                if name != other and tag in other_tag:
                    raise ConfigError(
                        f"format.{name}={tag!r} is part of format.{other}={other_tag!r}: "
                        "expected four tags of which none contains another"
                    )
        for tag in self._named_in_prompt() if self.instruction else ():
            if tag not in self.instruction:
                raise ConfigError(
                    f"format.instruction does not mention {tag!r}, which the checker asks for: "
                    "name it, or leave instruction empty to have it written from the other fields"
                )

    def _named_in_prompt(self) -> tuple[str, ...]:
        """The strings a prompt must name for the policy to be able to pass the check."""
        thought = () if self.mode == "off" else (self.think_open, self.think_close)
        answer = {
            "free": (),
            "boxed": ("\\boxed",),
            "tags": (self.answer_open, self.answer_close),
        }[self.answer_style]
        return (*thought, *answer)

    def system_prompt(self) -> str:
        r"""The instruction that asks for exactly the layout that is checked.

        >>> print(FormatSpec(answer_style="boxed").system_prompt())
        Begin with your reasoning between <think> and </think>, once. Then give the final answer in \boxed{}.
        """
        if self.instruction:
            return self.instruction
        answer = {
            # The two forms that the ladder of rewards.text reads whatever the answer is.
            "free": 'give the final answer, alone or after the words "The answer is".',
            "boxed": "give the final answer in \\boxed{}.",
            "tags": (
                f"write only the final answer between {self.answer_open} and {self.answer_close}, once, "
                "with nothing else around it."
            ),
        }[self.answer_style]
        thought = f"your reasoning between {self.think_open} and {self.think_close}, once."
        if self.mode == "required":
            return f"Begin with {thought} Then {answer}"
        if self.mode == "optional":
            return f"You may begin with {thought} Then {answer}"
        return answer[0].upper() + answer[1:]

    def lay_out(self, thought: str | None, answer: str) -> str:
        r"""A completion in the layout; None leaves the thought out, and so does a layout without one.

        >>> FormatSpec(answer_style="boxed").lay_out("7+5=12", "12")
        '<think>7+5=12</think>\\boxed{12}'
        """
        shown = {
            "free": answer,
            "boxed": f"\\boxed{{{answer}}}",
            "tags": f"{self.answer_open}{answer}{self.answer_close}",
        }[self.answer_style]
        if thought is None or self.mode == "off":
            return shown
        return f"{self.think_open}{thought}{self.think_close}{shown}"

    def prefill_of(self, rendered_prompt: str) -> str:
        r"""The end of a rendered prompt that opens the thought, or "" when the prompt ends outside one.

        Only an opening tag with nothing but white space after it counts: a tag that an instruction merely
        mentions is not a prefill.

        >>> FormatSpec().prefill_of("<|assistant|>\n<think>\n")
        '<think>\n'
        >>> FormatSpec().prefill_of("Use <think> and </think>.<|assistant|>\n")
        ''
        """
        opened = rendered_prompt.rfind(self.think_open)
        if opened < 0 or rendered_prompt[opened + len(self.think_open) :].strip():
            return ""
        return rendered_prompt[opened:]
