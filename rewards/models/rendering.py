"""A question and the steps of a completion -> token ids and the positions that a convention reads.

Positions come from construction: it is known where each tag was written, and the token that covers that
character is read. Nothing is searched for, so a tag that a user or a policy typed counts for nothing. The
text of questions and completions is never control text: a special token spelled in it is broken up by a
space, so that a completion can neither open a turn nor end one.

Knows tokenizers and chat templates; knows nothing of models.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase

from rewards.errors import ConfigError
from rewards.models.conventions import Convention

_QUESTION, _REPLY, _TURN = "QQplumbQQ", "RRplumbRR", "TTplumb{}TT"
"""Stand-ins for what a chat template is filled with."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_TEMPLATES = 1024  # numbers of turns whose rendered template is kept


@dataclass(frozen=True, slots=True)
class Rendered:
    """ids: the whole input. reads: the position of each step's value, ascending.

    start: the number of tokens before the completion. overrun: steps whose read token reaches past the mark
    that it stands for. split: steps whose tag, in a text that is tokenised as one, is no token of its own.
    """

    ids: tuple[int, ...]
    reads: tuple[int, ...]
    start: int
    overrun: tuple[int, ...] = ()
    split: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    role: Literal["frame", "step", "tag"]


class Renderer:
    """Renders for one tokenizer and convention.

    Raises:
        ConfigError: when the tokenizer lacks what the convention needs (offsets, a chat template, the tag).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, convention: Convention) -> None:
        self.tokenizer = tokenizer
        self.convention = convention
        if not tokenizer.is_fast:
            raise ConfigError(
                f"{type(tokenizer).__name__} tells no character offsets: expected a fast tokenizer "
                "(a folder with tokenizer.json)"
            )
        self._library: Any = tokenizer
        if convention.layout != "plain" and self._library.chat_template is None:
            raise ConfigError(
                f"the convention's layout is {convention.layout}, but the tokenizer has no chat template: "
                "use the reward model's own tokenizer files, or a convention with layout=plain"
            )
        self._control = _control_tokens(tokenizer, convention)
        self._tag = self._tag_text()
        self._bos = _ids_if(convention.bos, special_id(tokenizer.bos_token_id))
        self._eos = _ids_if(convention.eos, special_id(tokenizer.eos_token_id))
        self._template = lru_cache(_TEMPLATES)(self._render_template)

    def render(self, question: str, steps: Sequence[str]) -> Rendered:
        """The input for a question and the texts of its steps, one or more; outer white space is dropped."""
        question = self._plain(question)
        pieces = self._pieces(question, [self._plain(step).strip() for step in steps])
        alone = self.convention.tokenise == "alone"
        rendered = self._tokenise_alone(pieces) if alone else self._tokenise_together(pieces)
        ids = (*self._bos, *rendered.ids, *self._eos)
        shift = len(self._bos) + self.convention.offset
        reads = tuple(read + shift for read in rendered.reads)
        if self.convention.read_at == "end":
            reads = (len(ids) - 1 + self.convention.offset,)
        return replace(rendered, ids=ids, reads=reads, start=rendered.start + len(self._bos))

    def breaks_up(self, token: str) -> bool:
        """Whether a token spelled in a question or a completion is broken up, so that no text can hold it."""
        return self._control is not None and self._control.fullmatch(token) is not None

    def _plain(self, text: str) -> str:
        """Text that a tokenizer can take and that holds no control token."""
        text = _LONE_SURROGATE.sub("\ufffd", text)
        if self._control is None:
            return text
        return self._control.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def _tag_text(self) -> str:
        convention = self.convention
        if convention.tag_id is None:
            return convention.tag
        if not 0 <= convention.tag_id < len(self.tokenizer):
            raise ConfigError(f"convention.tag_id={convention.tag_id}: the tokenizer has no such token")
        text = self.tokenizer.convert_ids_to_tokens(convention.tag_id)
        added = convention.tag_id in self.tokenizer.added_tokens_decoder
        if convention.tokenise == "together" and not added:
            raise ConfigError(
                f"convention.tag_id={convention.tag_id} is {text!r}, no added token: what is tokenised as "
                "one text needs a tag that a string gives; give tag, or tokenise=alone"
            )
        return str(text)

    def _pieces(self, question: str, steps: Sequence[str]) -> list[_Piece]:
        c = self.convention
        if c.layout == "turns":
            return self._turns(question, steps)
        if c.layout == "plain":
            before, after = c.before_question + question + c.after_question, ""
        else:
            opening, middle, after = self._template(0)
            before = opening + question + middle
        pieces = [_Piece(before, "frame")]
        for number, step in enumerate(steps, start=1):
            label = c.step_label.replace("{n}", str(number))
            label = "" if label and step.startswith(label.strip()) else label
            join = c.step_join if number > 1 else ""
            pieces.append(_Piece(join + label + step, "step"))
            if c.has_tag:
                pieces += [_Piece(c.before_tag, "frame"), _Piece(self._tag, "tag")]
        return [*pieces, _Piece(after, "frame")]

    def _turns(self, question: str, steps: Sequence[str]) -> list[_Piece]:
        frames = self._template(len(steps))
        pieces = [_Piece(frames[0] + question + self.convention.after_question, "frame")]
        for number, step in enumerate(steps):
            pieces += [
                _Piece(step, "step"),
                _Piece(frames[2 * number + 1], "frame"),
                _Piece(self._tag, "tag"),
            ]
            pieces.append(_Piece(frames[2 * number + 2], "frame"))
        return pieces

    def _render_template(self, turns: int) -> list[str]:
        """What the template writes around its contents: one question and reply, or a number of turns."""
        system = self.convention.system
        contents = [_QUESTION, _REPLY]
        if turns:
            contents = [name for n in range(turns) for name in (_TURN.format(n), _REPLY + f"{n}R")]
        messages = [] if system is None else [{"role": "system", "content": system}]
        for place, content in enumerate(contents):
            messages.append({"role": "assistant" if place % 2 else "user", "content": content})
        try:
            rest = str(self._library.apply_chat_template(messages, tokenize=False))
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise ConfigError(f"the chat template refuses the convention's turns: {error}") from error
        frames: list[str] = []
        for content in contents:
            before, found, rest = rest.partition(content)
            if not found:
                raise ConfigError(
                    "the chat template does not write every turn as it is: expected one that does, or "
                    "layout=plain"
                )
            frames.append(before)
        frames.append(rest)
        if system is not None and not any(system.strip() in frame for frame in frames):
            raise ConfigError(
                "the chat template leaves out the system turn that the convention gives "
                f"({system[:40]!r}): expected the reward model's own template, or system=null"
            )
        return frames

    def _tokenise_alone(self, pieces: Sequence[_Piece]) -> Rendered:
        ids: list[int] = []
        reads: list[int] = []
        start: int | None = None
        for piece in pieces:
            if piece.role != "frame" and start is None:
                start = len(ids)
            ids += self._ids(piece)
            if piece.role == self.convention.read_at:
                reads.append(len(ids) - 1)
        return Rendered(tuple(ids), tuple(reads), start or 0)

    def _ids(self, piece: _Piece) -> list[int]:
        if piece.role == "tag" and self.convention.tag_id is not None:
            return [self.convention.tag_id]
        return self.tokenizer(piece.text, add_special_tokens=False)["input_ids"] if piece.text else []

    def _tokenise_together(self, pieces: Sequence[_Piece]) -> Rendered:
        """One tokenisation; the token that covers the last character of a mark is read."""
        text = "".join(piece.text for piece in pieces)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        offsets: list[tuple[int, int]] = encoded["offset_mapping"]
        starts = [start for start, _ in offsets]
        end = 0
        first: int | None = None
        reads: list[int] = []
        overrun: list[int] = []
        split: list[int] = []
        for piece in pieces:
            if piece.role != "frame" and first is None:
                first = end
            begin, end = end, end + len(piece.text)
            if piece.role == self.convention.read_at:
                token = bisect_right(starts, end - 1) - 1
                if not offsets[token][0] <= end - 1 < offsets[token][1] or offsets[token][1] > end:
                    overrun.append(len(reads))
                before = offsets[token - 1][1] if token else 0  # bytes of one character overlap
                if piece.role == "tag" and (before > begin or text[offsets[token][0] : begin].strip()):
                    split.append(len(reads))
                reads.append(token)
        ids, start = tuple(encoded["input_ids"]), bisect_left(starts, first or 0)
        return Rendered(ids, tuple(reads), start, tuple(overrun), tuple(split))


def special_id(token: object) -> int | None:
    """A tokenizer's id of bos, eos or pad, which its types know less well than it does."""
    return token if isinstance(token, int) else None


def _ids_if(wanted: bool, token: int | None) -> tuple[int, ...]:
    return (token,) if wanted and token is not None else ()


def _control_tokens(tokenizer: PreTrainedTokenizerBase, convention: Convention) -> re.Pattern[str] | None:
    """Special tokens and the tag, where it is a token of its own; the longest first."""
    added = tokenizer.added_tokens_decoder.values()
    names = {token.content for token in added if token.special or token.content == convention.tag}
    names = {name for name in (*names, *tokenizer.all_special_tokens) if len(name) > 1}
    if not names:
        return None
    return re.compile("|".join(re.escape(name) for name in sorted(names, key=lambda n: (-len(n), n))))
