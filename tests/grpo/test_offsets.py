"""Characters to tokens, exact for tokenizers of every kind and for text of every kind."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from grpo import offsets
from grpo.credit import CreditSettings, process_advantages
from grpo.offsets import steps_to_token_ends, token_char_ends
from grpo.tiny import tiny_tokenizer
from rewards.types import Problem, Sample, StepScore
from rewards.verifiers.arithmetic_steps import ArithmeticStepScorer

CORPUS = [
    "Step 1. We add 7 and 5.\n\nStep 2. The carry is 1. So 3+4+1=8.\n\n",
    "naïve café — 数学 は たのしい 🙂🙂. \n\n\n So: x² ≠ ∞.\r\n",
] * 4


def byte_level() -> Tokenizer:
    """Byte-level BPE with merges such as ".\\n\\n"; characters outside the corpus take several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<eos>", "<think>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def char_level() -> Tokenizer:
    """One token a character, and a whole tag."""
    characters = sorted(set("".join(CORPUS)))
    tokenizer = Tokenizer(models.WordLevel({c: i for i, c in enumerate(["?", *characters])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    return tokenizer


def sentence_pieces() -> Tokenizer:
    """Spaces as ▁ with the first one dropped, unknown characters as byte tokens: context decides."""
    vocabulary = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}
    for character in "▁abcdefghijklmnopqrstuvwxyzSW.0123456789+=,":
        vocabulary[character] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


TOKENIZERS = {"bytes": byte_level(), "characters": char_level(), "pieces": sentence_pieces()}


def decode_with(tokenizer: Tokenizer, *, skip_special: bool = False) -> Callable[[Sequence[int]], str]:
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=skip_special)


def by_definition(ids: Sequence[int], text: str, decode: Callable[[Sequence[int]], str]) -> list[int]:
    """The longest common prefix of every prefix's text with the whole text, as a plain loop."""
    ends: list[int] = []
    for t in range(len(ids)):
        prefix = decode(ids[: t + 1])
        agreed = 0
        while agreed < min(len(prefix), len(text)) and prefix[agreed] == text[agreed]:
            agreed += 1
        ends.append(agreed)
    return list(accumulate(ends, max))


STEP = st.text(alphabet=st.sampled_from("ab7+=. \n·é数🙂\u200d\r"), min_size=1, max_size=8)
SEPARATOR = st.sampled_from([". ", "\n", "\n\n", ".\n\n", " \n\n", "\r\n"])


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(STEP, SEPARATOR), min_size=1, max_size=6), st.sampled_from(sorted(TOKENIZERS)))
def test_trap_39_steps_cover_exactly_their_tokens(pieces: list[tuple[str, str]], name: str) -> None:
    tokenizer = TOKENIZERS[name]
    decode = decode_with(tokenizer)
    ids = tokenizer.encode("".join(step + separator for step, separator in pieces)).ids
    text = decode(ids)  # what the scorers see; a tokenizer may lose characters it does not know
    bounds = sorted({0, len(text), *(len(text) * k // (len(pieces) + 1) for k in range(1, len(pieces) + 1))})
    steps = [StepScore(a, b, 1.0) for a, b in pairwise(bounds)]
    char_ends = token_char_ends(ids, text, decode)
    assert char_ends == by_definition(ids, text, decode)
    for step, end in zip(steps, steps_to_token_ends(steps, char_ends), strict=True):
        # The tokens up to `end` settle the whole step; one token fewer leaves it unfinished.
        assert decode(ids[: end + 1]).startswith(text[: step.end])
        if step is not steps[-1]:
            assert not decode(ids[:end]).startswith(text[: step.end])


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(sorted(TOKENIZERS)), st.booleans())
def test_random_ids_keep_the_definition(data: st.DataObject, name: str, skip_special: bool) -> None:
    # A policy samples ids, not text: broken bytes, lone continuation bytes, special tokens anywhere.
    tokenizer = TOKENIZERS[name]
    decode = decode_with(tokenizer, skip_special=skip_special)
    ids = data.draw(st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=30))
    text = decode(ids)
    char_ends = token_char_ends(ids, text, decode)
    assert char_ends == by_definition(ids, text, decode)
    assert (char_ends[-1] if ids else 0) == len(text)


def test_one_character_over_several_tokens_counts_from_its_last() -> None:
    tokenizer = TOKENIZERS["bytes"]
    decode = decode_with(tokenizer)
    ids = tokenizer.encode("a𝄞b").ids  # U+1D11E is not in the corpus: four bytes, four tokens
    assert len(ids) == 6
    char_ends = token_char_ends(ids, "a𝄞b", decode)
    assert char_ends == [1, 1, 1, 1, 2, 3]
    steps = [StepScore(0, 1, 1.0), StepScore(1, 2, 1.0), StepScore(2, 3, 1.0)]
    assert steps_to_token_ends(steps, char_ends) == [0, 4, 5]


def test_a_separator_merged_into_one_token_ends_both_its_steps() -> None:
    tokenizer = TOKENIZERS["bytes"]
    decode = decode_with(tokenizer)
    ids = tokenizer.encode("add 7.\n\nStep").ids
    char_ends = token_char_ends(ids, "add 7.\n\nStep", decode)
    merged = next(i for i, token in enumerate(ids) if ".\n\n" in decode([token]))
    steps = [StepScore(0, 6, 1.0), StepScore(6, 8, 1.0), StepScore(8, 12, 1.0)]  # cut inside ".\n\n"
    ends = steps_to_token_ends(steps, char_ends)
    assert ends[0] == ends[1] == merged
    assert ends[2] == len(ids) - 1


def test_the_stop_token_belongs_to_the_last_step() -> None:
    tokenizer = TOKENIZERS["bytes"]
    eos = tokenizer.token_to_id("<eos>")
    for skip_special in (False, True):
        ids = [*tokenizer.encode("So 8.").ids, eos]
        char_ends = token_char_ends(ids, "So 8.", decode_with(tokenizer, skip_special=skip_special))
        assert char_ends[-2:] == [5, 5]
        assert steps_to_token_ends([StepScore(0, 5, 1.0)], char_ends) == [len(ids) - 1]


def test_special_tokens_that_print_and_that_do_not() -> None:
    tokenizer = TOKENIZERS["bytes"]
    think = tokenizer.token_to_id("<think>")
    ids = [think, *tokenizer.encode("a").ids]
    assert token_char_ends(ids, "<think>a", decode_with(tokenizer)) == [7, 8]
    assert token_char_ends(ids, "a", decode_with(tokenizer, skip_special=True)) == [0, 1]


def test_a_leading_space_that_the_decoder_drops() -> None:
    tokenizer = TOKENIZERS["pieces"]
    ids = tokenizer.encode("a b").ids  # ▁ a ▁ b, the first ▁ prints nothing
    assert token_char_ends(ids, "a b", decode_with(tokenizer)) == [0, 1, 2, 3]


def test_decoding_is_linear_in_the_number_of_tokens() -> None:
    for name in ("bytes", "pieces"):
        tokenizer = TOKENIZERS[name]
        ids = tokenizer.encode("ab 𝄞. " * 200).ids
        seen = 0

        def decode(some: Sequence[int], tokenizer: Tokenizer = tokenizer) -> str:
            nonlocal seen
            seen += len(some)
            return tokenizer.decode(list(some), skip_special_tokens=False)

        token_char_ends(ids, decode(ids), decode)
        assert seen < 20 * len(ids)


def test_a_decoder_with_a_long_memory_is_followed_exactly() -> None:
    # The whole text changes once token 9 is there: no window can see that.
    def decode(ids: Sequence[int]) -> str:
        text = "".join("abcdefghij"[i] for i in ids)
        return text.upper() if 9 in ids else text

    ids = [*[0, 1, 2] * 10, 9]
    text = decode(ids)
    assert token_char_ends(ids, text, decode) == [0] * 30 + [31]
    assert offsets._windowed_char_ends(ids, text, decode) is None


def test_the_embedded_tokenizer_puts_a_false_equation_on_its_own_tokens() -> None:
    tokenizer = tiny_tokenizer(["<think>", "</think>"])
    text = "<think>7+5=12,c1;3+4+1=7</think>72"
    ids = [*tokenizer(text).input_ids, tokenizer.eos_token_id]
    [score] = ArithmeticStepScorer().score([Sample(Problem("p", "37+45="), text)])
    char_ends = token_char_ends(ids, text, lambda some: tokenizer.decode(some, skip_special_tokens=False))
    ends = steps_to_token_ends(score.steps, char_ends)
    assert [tokenizer.decode(ids[: end + 1]) for end in ends] == ["<think>7+5=12", text + "<eos>"]
    good, bad = [step.value for step in score.steps]
    [row, _] = process_advantages(
        [[good, bad], [1.0]], [ends, [0]], [len(ids), 1], CreditSettings(form="difference")
    )
    assert (row[: ends[0] + 1] > 0).all()
    assert (row[ends[0] + 1 :] < 0).all()


def test_no_tokens_and_no_steps() -> None:
    decode = decode_with(TOKENIZERS["bytes"])
    assert token_char_ends([], "", decode) == []
    assert steps_to_token_ends([], []) == []
    assert steps_to_token_ends([], [1, 2]) == []
    assert steps_to_token_ends([StepScore(0, 0, 1.0)], []) == [-1]


def test_an_empty_step_at_the_start_has_no_token() -> None:
    assert steps_to_token_ends([StepScore(0, 0, 1.0), StepScore(0, 2, 1.0)], [1, 2]) == [-1, 1]


def test_foreign_text_and_foreign_steps_are_refused() -> None:
    tokenizer = TOKENIZERS["bytes"]
    with pytest.raises(ValueError, match="not the beginning"):
        token_char_ends(tokenizer.encode("abc").ids, "abd", decode_with(tokenizer))
    with pytest.raises(ValueError, match="ends after the 2 characters"):
        steps_to_token_ends([StepScore(0, 3, 1.0)], [1, 2])
