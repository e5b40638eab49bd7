"""Length, repetition and language: the formulas by hand, and what they refuse."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.errors import ConfigError
from rewards.scorer import Scorer
from rewards.types import Problem, Reason, Sample, Score, Verdict
from rewards.verifiers.language import SCRIPTS, LanguageVerifier, main_scripts, words_by_script
from rewards.verifiers.length import LengthVerifier
from rewards.verifiers.repetition import RepetitionVerifier, repeated_share

ALL: tuple[Scorer, ...] = (
    LengthVerifier(40, 20, 1.5),
    LengthVerifier(8, 4, unit="words"),
    RepetitionVerifier(2, 2.0),
    RepetitionVerifier(unit="characters"),
    LanguageVerifier("en"),
    LanguageVerifier("zh"),
    LanguageVerifier("prompt"),
)


def judge(verifier: Scorer, text: str, prompt: str = "", truncated: bool = False) -> Score:
    (score,) = verifier.score([Sample(Problem("p", prompt, ("1",)), text, truncated=truncated)])
    return score


@pytest.mark.parametrize(
    ("length", "value"), [(0, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (20, -1.0), (21, -1.0), (500, -1.0)]
)
def test_overlong_punishment_by_the_formula(length: int, value: float) -> None:
    # L_max 20, buffer 4: it sets in after 16 and is whole at 20.
    assert judge(LengthVerifier(20, 4), "x" * length).value == value
    assert judge(LengthVerifier(20, 4, unit="words"), "word " * length).value == value
    assert judge(LengthVerifier(20, 4, factor=0.5), "x" * length).value == value / 2


def test_a_cut_off_completion_is_as_long_as_can_be() -> None:
    score = judge(LengthVerifier(20, 4), "x", truncated=True)
    assert (score.value, score.reason) == (-1.0, Reason.TRUNCATED)


def test_end_of_turn_tokens_have_no_length() -> None:
    assert judge(LengthVerifier(20, 4), "x" * 16 + "<|im_end|>\n").value == 0.0


@pytest.mark.parametrize(
    ("text", "ngram", "share"),
    [
        ("", 3, 0.0),
        ("a b", 3, 0.0),
        ("a b c", 3, 0.0),
        ("a b c d", 3, 0.0),
        ("a a a a", 1, 0.75),  # one of four is new
        ("a a a a", 3, 0.5),  # aaa aaa: one of two is new
        ("a b a b a", 2, 0.5),  # ab ba ab ba
        ("a b c a b c", 3, 0.25),  # abc bca cab abc: three of four
    ],
)
def test_repetition_by_hand(text: str, ngram: int, share: float) -> None:
    assert repeated_share(text.split(), ngram) == share
    assert judge(RepetitionVerifier(ngram, 2.0), text).value == -2.0 * share


def test_repetition_does_not_depend_on_case_or_spacing_and_counts_characters_on_request() -> None:
    assert judge(RepetitionVerifier(1), "Again  again\nAGAIN").value == pytest.approx(-2 / 3)
    assert judge(RepetitionVerifier(1), "好好好好").value == 0.0  # one word
    assert judge(RepetitionVerifier(1, unit="characters"), "好好好好").value == -0.75


@pytest.mark.parametrize(
    ("language", "text", "value"),
    [
        ("en", "only English words here", 1.0),
        ("en", "two words 两个", 0.5),
        ("zh", "两个 two words", 0.5),
        ("zh", "全部是中文", 1.0),
        ("ja", "これは日本語です", 1.0),
        ("ru", "три слова and two", 0.5),
        ("ko", "한국어 문장", 1.0),
        ("en", "", 0.0),
        ("en", "1 + 1 = 2", 0.0),
        ("zh", "答案是 $\\frac{\\sin x}{2}$ 和 \\boxed{5}。", 1.0),
        ("zh", "<think>思考</think>答案", 1.0),
        ("zh", "代码\n```python\nprint(answer)\n```\n结束", 1.0),
        ("en", "let x be y", 1.0),
    ],
)
def test_the_share_of_words_in_the_target_script(language: str, text: str, value: float) -> None:
    assert judge(LanguageVerifier(language), text).value == pytest.approx(value)


def test_the_target_may_be_the_prompts_own_script() -> None:
    verifier = LanguageVerifier("prompt")
    assert judge(verifier, "全部", "求和").value == 1.0
    assert judge(verifier, "全部", "Find the sum.").value == 0.0
    assert judge(verifier, "all of it", "Find the sum.").value == 1.0
    assert judge(verifier, "これは", "これは何").value == 1.0
    abstained = judge(verifier, "anything", "1 + 1 =")
    assert (abstained.verdict, abstained.reason) == (Verdict.ABSTAINED, Reason.NOT_APPLICABLE)


def test_scripts_of_a_text() -> None:
    assert main_scripts("漢字だけではない") == SCRIPTS["ja"]
    assert main_scripts("只有汉字") == SCRIPTS["zh"]
    assert main_scripts("") == frozenset()
    assert main_scripts("ქართული ენა") == {"GEORGIAN"}
    assert words_by_script("mixed中文word") == {"LATIN": 1, "CJK": 2}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LengthVerifier(10, 11), "buffer"),
        (lambda: LengthVerifier(10, 0), "buffer"),
        (lambda: LengthVerifier(factor=0.0), "factor"),
        (lambda: LengthVerifier(unit="tokens"), "characters, words"),  # pyright: ignore[reportArgumentType]
        (lambda: RepetitionVerifier(0), "ngram"),
        (lambda: RepetitionVerifier(penalty=-1.0), "penalty"),
        (lambda: RepetitionVerifier(unit="bytes"), "words, characters"),  # pyright: ignore[reportArgumentType]
        (lambda: LanguageVerifier("english"), "en, he"),
    ],
)
def test_settings_without_a_meaning_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ConfigError, match=message):
        make()


@given(st.text())
def test_every_value_lies_in_its_range(text: str) -> None:
    for verifier, low, high in zip(ALL, (-1.5, -1, -2, -1, 0, 0, 0), (0, 0, 0, 0, 1, 1, 1), strict=True):
        score = judge(pickle.loads(pickle.dumps(verifier)), text, "Which is it?")
        assert score.value is not None
        assert low <= score.value <= high
        assert str(score.value) != "-0.0"


@pytest.mark.parametrize("unit", ["a", "a ", "好", "$", "\\(", "<", "```\n", "\\a"])
def test_a_quarter_megabyte_of_anything_is_read(unit: str) -> None:
    for verifier in ALL:
        assert judge(verifier, unit * (2**18 // len(unit)), "Which is it?").verdict is Verdict.SCORED
