"""Labelled examples: every kind survives its file, and what is wrong is told by file, line and field."""

from pathlib import Path

import pytest

from rewards.errors import DataError
from rewards.labelled import (
    NEUTRAL,
    Example,
    OutcomeExample,
    PreferenceExample,
    ProcessExample,
    example_from_record,
    example_to_record,
    read_labelled,
    write_labelled,
)

EXAMPLES: list[Example] = [
    OutcomeExample("1 + 1?", "It is 2.\n#### 2", 1.0, "gsm8k", "a-1", {"model": "6b"}),
    OutcomeExample("1 + 1?", "", 0.25),
    PreferenceExample("1 + 1?", "2", "3", 0.5, "math", "pairs", "p", {}),
    ProcessExample("1 + 1?", ("One.", "So 3.", "Done."), (1.0, 0.0, None), "prm800k"),
    ProcessExample("1 + 1?", ("One.", "Two.", "\ud800"), (NEUTRAL, 0.5, None)),
]


@pytest.mark.parametrize("name", ["examples.jsonl", "examples.jsonl.gz"])
def test_examples_survive_their_file(name: str, tmp_path: Path) -> None:
    assert write_labelled(tmp_path / name, EXAMPLES) == len(EXAMPLES)
    assert read_labelled(tmp_path / name) == EXAMPLES
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_optional_fields_may_be_absent_and_booleans_are_labels() -> None:
    record = {"kind": "process", "question": "q", "steps": ["a", "b"], "labels": [True, "neutral"]}
    example = example_from_record(record, "x")
    assert example == ProcessExample("q", ("a", "b"), (1.0, NEUTRAL))
    assert example_to_record(example)["labels"] == [1.0, "neutral"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "pair"}, "kind='pair': expected outcome, preference or process"),
        ({"kind": None}, "field 'kind'"),
        ({"question": " "}, "question: expected a text"),
        ({"label": 1.5}, "label=1.5: expected a number from 0"),
        ({"label": float("nan")}, "label=nan"),
        ({"label": "right"}, "field 'label': expected a number"),
        ({"completion": None}, "field 'completion'"),
        ({"meta": {"a": 1}}, "field 'meta'"),
        ({"kind": "preference", "chosen": "a", "rejected": "a"}, "chosen and rejected are equal"),
        ({"kind": "preference", "chosen": "a", "rejected": "b", "margin": -1}, "margin=-1.0"),
        ({"kind": "process", "steps": [], "labels": []}, "0 steps, 0 labels"),
        ({"kind": "process", "steps": ["a"], "labels": [1, 0]}, "1 steps, 2 labels"),
        ({"kind": "process", "steps": "a", "labels": [1]}, "field 'steps': expected a list"),
        ({"kind": "process", "steps": [1], "labels": [1]}, "field 'steps': expected a list of strings"),
        ({"kind": "process", "steps": ["a"], "labels": ["good"]}, "field 'labels': expected numbers"),
        ({"kind": "process", "steps": ["a"], "labels": [-1]}, "labels[0]=-1.0"),
    ],
)
def test_a_wrong_record_is_named_by_its_place(change: dict[str, object], told: str) -> None:
    record = {"kind": "outcome", "question": "q", "completion": "c", "label": 1} | change
    with pytest.raises(DataError) as caught:
        example_from_record(record, "f.jsonl, line 7")
    message = str(caught.value)
    assert message.startswith("f.jsonl, line 7")
    assert told in message
    assert "\n" not in message
    assert message.count("f.jsonl") == 1
