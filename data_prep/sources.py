"""Rows from a local file, a local dataset folder, or the Hugging Face hub.

Knows how to open them; does not know what the rows mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

from data_prep.fields import Fields, Row
from rewards.errors import DataError
from rewards.io import RecordReader
from rewards.records import RawRecord, decode_record

FILE_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")


def iter_rows(source: str, subset: str | None, split: str) -> Iterator[Row]:
    """Yields (name of the row for people, row) in the order of the source; a broken line as its error.

    Args:
        source: a .jsonl, .jsonl.gz or .parquet file, a folder that `datasets` can read, or a hub name such as
            openai/gsm8k. What exists on disk comes first.
        subset: the hub's configuration name, or None for its default; of no meaning for a file.
        split: train, test, ...; of no meaning for a file.

    Raises:
        DataError: the source is missing, cannot be read, or has no such subset or split.
    """
    path = Path(source).expanduser()
    if path.is_file():
        for line, raw in RecordReader(str(path)):
            yield f"{path}, line {line}", _decoded(str(path), line, raw)
        return
    if source.endswith(FILE_SUFFIXES) or (source.startswith(("/", "./", "../", "~")) and not path.is_dir()):
        raise DataError(f"source={source}: no such file (looked from {Path.cwd()})")
    for number, row in enumerate(_load(str(path) if path.is_dir() else source, subset, split), start=1):
        yield f"{source} {split}, row {number}", row


def _decoded(path: str, line: int, raw: RawRecord) -> Fields | DataError:
    try:
        return decode_record(path, line, raw)
    except DataError as error:
        return error


def _load(source: str, subset: str | None, split: str) -> Iterable[Mapping[str, object]]:
    # Imported here because it takes seconds, and neither arithmetic nor a local file needs it.
    from datasets import Dataset, load_dataset

    try:
        loaded = load_dataset(source, subset, split=split)
    except (OSError, ValueError) as error:
        # ValueError is the library's word for an unknown subset or split, OSError for all that is missing.
        raise DataError(
            f"source={source} subset={subset} split={split}: cannot be loaded ({error}). Check the names, or "
            "download the set where there is a network and give source=FILE (.jsonl, .jsonl.gz or .parquet)"
        ) from error
    if not isinstance(loaded, Dataset):
        raise DataError(f"source={source}: expected one split of a dataset, got {type(loaded).__name__}")
    return cast(Iterable[Mapping[str, object]], loaded)
