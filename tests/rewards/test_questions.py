"""Which questions are the same, and which are held out."""

import pytest

from rewards.errors import ConfigError
from rewards.labelled import OutcomeExample
from rewards.questions import hash64, question_hash, split_by_question

EXAMPLES = [
    OutcomeExample(f"What is {n} + {n}?", f"It is {guess}.", float(guess == 2 * n))
    for n in range(400)
    for guess in (2 * n, 2 * n + 1)
]


def test_a_question_is_the_same_however_it_is_typeset() -> None:
    assert question_hash("What is 1 + 1?") == question_hash("\twhat is\n1+1? ")
    assert question_hash("ﬁnd x") == question_hash("find x")
    assert question_hash("What is 1 + 1?") != question_hash("What is 1 + 11?")
    assert hash64("\ud800") != hash64("\ud801")


def test_all_examples_of_a_question_fall_to_one_side_in_order() -> None:
    rest, heldout = split_by_question(EXAMPLES, 0.25, seed=3)
    assert {question_hash(e.question) for e in rest} & {question_hash(e.question) for e in heldout} == set()
    assert sorted(rest + heldout, key=EXAMPLES.index) == EXAMPLES
    assert [e for e in EXAMPLES if e in heldout] == heldout
    # 400 questions of which a quarter is drawn: 100 +- 5 standard deviations (8.7)
    assert 2 * 57 < len(heldout) < 2 * 143


def test_the_side_of_a_question_depends_on_it_and_the_seed_alone() -> None:
    _, heldout = split_by_question(EXAMPLES, 0.25, seed=3)
    _, of_half = split_by_question(EXAMPLES[::-2], 0.25, seed=3)
    assert of_half == [e for e in EXAMPLES[::-2] if e in heldout]
    _, other = split_by_question(EXAMPLES, 0.25, seed=4)
    assert other != heldout
    assert split_by_question(EXAMPLES, 0.0, seed=0) == (EXAMPLES, [])


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_leaves_nothing_to_train_on_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="share="):
        split_by_question(EXAMPLES, share, seed=0)
