"""Sets of completions with a verdict on the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from data_prep.drops import DropReason
from data_prep.fields import Fields, Row, each_row, truth_field
from rewards.errors import DataError
from rewards.labelled import OutcomeExample
from rewards.records import text_field

Found = tuple[str, OutcomeExample | DropReason]


def read_gsm8k_solutions(
    rows: Iterable[Row],
) -> Iterator[tuple[str, OutcomeExample | DropReason | DataError]]:
    """The model solutions of Cobbe et al. 2021, arXiv:2110.14168: one example for each model of a row.

    {"question", "ground_truth", MODEL: {"is_correct", "solution"}, ...}. The questions are those of the test
    set, so nothing that was trained on them can be measured there. Solutions keep their calculator marks.
    """
    return each_row(rows, _solutions)


def _solutions(number: int, where: str, row: Fields) -> Iterator[Found]:
    question = text_field(row, "question", where).strip()
    models = {name: cast(Fields, value) for name, value in row.items() if isinstance(value, dict)}
    if not models:
        raise DataError(
            f"{where}: no field holds an object {{is_correct, solution}}; there are {', '.join(row)}: "
            "expected the layout of example_model_solutions.jsonl"
        )
    for model, solved in models.items():
        place = f"{where}, field {model!r}"
        completion = text_field(solved, "solution", place)
        label = float(truth_field(solved, "is_correct", place))
        if not question:
            yield place, DropReason.NO_PROMPT
        elif not completion.strip():
            yield place, DropReason.EMPTY_COMPLETION
        else:
            name = f"gsm8k_solutions-{number:06d}-{model}"
            yield (
                place,
                OutcomeExample(question, completion, label, "gsm8k_solutions", name, {"model": model}),
            )
