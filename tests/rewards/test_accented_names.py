"""Names under a dot, a hat or an arrow keep their indices."""

import pytest

import rewards


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        (r"\dot{x}_{0} t", r"t \dot{x}_0", True),
        (r"\hat x_1 + 1", r"1 + \hat{x}_{1}", True),
        (r"2\vec{v}_1", r"\vec{v_1} \cdot 2", True),
        (r"\overline{AB} + 1", r"1 + \overline{A B}", True),
        (r"\hat{x}_1", r"\hat{x}_2", False),
        (r"\dot{x_0}", r"\dot{x_1}", False),
        (r"\dot{x}", r"x", False),
        (r"\dot{x}'", r"\dot{x}", False),
        (r"\dot{a+b}", r"\dot{ab}", False),
    ],
)
def test_an_accented_name_is_one_name(gold: str, answer: str, equal: bool) -> None:
    assert (rewards.verify(gold=gold, prediction=rf"\boxed{{{answer}}}").value == 1.0) == equal
