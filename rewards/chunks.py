"""Cuts records into chunks and turns a chunk into lines of a score file, wherever that happens.

Where a chunk ends depends on the input alone (after CHUNK_LINES lines, earlier where they are long), and a
chunk is always scored whole, so that neither the number of workers nor an interruption changes a byte of the
output, not even for a reward model whose last digits depend on the batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from rewards.columns import Fields, sample_of
from rewards.errors import ConfigError, DataError
from rewards.isolation import guarded
from rewards.records import BrokenLine, RawRecord, decode_record, id_field, json_line, score_to_record
from rewards.scorer import Scorer
from rewards.tally import Tally
from rewards.types import Part, Reason, Sample, Score

CHUNK_LINES = 128
CHUNK_BYTES = 4 * 2**20
_DIGEST_BYTES = 8
_MAX_ERROR_CHARS = 500


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of a file; first is the line number (from 1) of records[0]."""

    first: int
    records: tuple[RawRecord, ...]


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """The output lines of a chunk, each ending in a newline, and a digest of each of its input lines.

    error is empty, or says what is wrong with the input line after the last of lines, at which the run stops.
    refusal is empty, or says why the scorer can score no line at all.
    """

    lines: tuple[bytes, ...]
    digests: tuple[bytes, ...]
    tally: Tally
    error: str = ""
    refusal: str = ""


def iter_chunks(records: Iterable[tuple[int, RawRecord]], limit: int | None = None) -> Iterator[Chunk]:
    """Cuts (line number, record) pairs into chunks; limit stops after that many lines, None never."""
    first, held, size = 1, list[RawRecord](), 0
    for number, record in records:
        if limit is not None and number > limit:
            break
        if not held:
            first = number
        held.append(record)
        size += len(record) if isinstance(record, bytes) else 0
        if len(held) == CHUNK_LINES or size >= CHUNK_BYTES:
            yield Chunk(first, tuple(held))
            held, size = [], 0
    if held:
        yield Chunk(first, tuple(held))


@dataclass(frozen=True, slots=True)
class Judge:
    """Scores chunks of one file. Picklable: this is what a worker process receives.

    skip_errors: an unreadable line becomes a failed record (reason bad_input) instead of stopping the run.
    """

    scorer: Scorer
    fields: Fields
    path: str
    skip_errors: bool = False

    def score(self, chunk: Chunk) -> ScoredChunk:
        """The output of a chunk. Never raises: a fault of the scorer is a failed record that says so.

        But a scorer that refuses its settings, such as a model that cannot be loaded, scores no line at all:
        that stops the run.
        """
        ids: list[str | int] = []
        samples: list[Sample] = []
        bad: dict[int, Score] = {}
        error = ""
        for number, raw in enumerate(chunk.records, start=chunk.first):
            try:
                row_id, sample = sample_of(
                    decode_record(self.path, number, raw), self.fields, f"{self.path}, line {number}"
                )
                ids.append(number if row_id is None else row_id)
                samples.append(sample)
            except DataError as fault:
                if not self.skip_errors:
                    error = str(fault)
                    break
                bad[len(ids)] = failed_score("input", Reason.BAD_INPUT, str(fault))
                ids.append(line_id(self.path, number, raw, self.fields))
        try:
            judged = iter(score_each(self.scorer, samples))
        except ConfigError as fault:
            return ScoredChunk((), (), Tally(), refusal=str(fault))
        scores = [bad[place] if place in bad else next(judged) for place in range(len(ids))]
        tally = Tally()
        lines: list[bytes] = []
        for row_id, score in zip(ids, scores, strict=True):
            line, written = _written(row_id, score)
            lines.append(line)
            tally.add(written)
        digests = tuple(line_digest(raw) for raw in chunk.records[: len(ids)])
        return ScoredChunk(tuple(lines), digests, tally, error)


def score_each(scorer: Scorer, samples: Sequence[Sample]) -> list[Score]:
    """Scores a batch; after a fault of the scorer, each sample alone, so that it costs one line only.

    Raises:
        ConfigError: from the scorer, which no sample is to blame for.
    """
    if not samples:
        return []
    scores = _score_or_fault(scorer, samples)
    if isinstance(scores, list):
        return scores
    if len(samples) == 1:
        return [failed_score("scorer", Reason.INTERNAL, scores)]
    return [score for sample in samples for score in score_each(scorer, [sample])]


def failed_score(part: str, reason: Reason, error: str) -> Score:
    """A failed score; the notes of its one part, of weight 0, keep the error where a score file shows it."""
    notes = {"error": error[:_MAX_ERROR_CHARS]}
    whole = Score.failed(reason)
    return Score(whole.verdict, None, reason, parts=(Part(part, 0.0, Score.failed(reason, notes=notes)),))


def line_id(path: str, number: int, raw: RawRecord, fields: Fields) -> str | int:
    """The id under which a line is scored: that of its record, or its number when it has none it can read."""
    try:
        row_id = id_field(decode_record(path, number, raw), fields.id, path)
    except DataError:
        return number
    return number if row_id is None else row_id


def line_digest(raw: RawRecord) -> bytes:
    """A short digest of one input record."""
    if isinstance(raw, BrokenLine):
        raw = raw.problem.encode()
    elif not isinstance(raw, bytes):
        raw = json.dumps(raw, default=str, sort_keys=True).encode()
    return hashlib.blake2b(raw, digest_size=_DIGEST_BYTES).digest()


def _score_or_fault(scorer: Scorer, samples: Sequence[Sample]) -> list[Score] | str:
    refused: list[ConfigError] = []

    def score(batch: Sequence[Sample]) -> list[Score]:
        try:
            return scorer.score(batch)
        except ConfigError as fault:
            refused.append(fault)
            raise

    outcome = guarded(score, samples)
    if refused:
        raise refused[0]
    if outcome.reason is not None:
        return outcome.note or outcome.reason.value
    scores = cast(list[Score], outcome.value)
    if len(scores) != len(samples):
        return f"the scorer returned {len(scores)} scores for {len(samples)} samples"
    return scores


def _written(row_id: str | int, score: Score) -> tuple[bytes, Score]:
    """The output line of a score, and the score in it: a failed one where this cannot be written (nan)."""
    outcome = guarded(lambda found: json_line(score_to_record(row_id, found)), score)
    if outcome.reason is None:
        return cast(bytes, outcome.value), score
    fault = f"the scorer returned what cannot be written: {outcome.note}"
    failed = failed_score("scorer", Reason.INTERNAL, fault)
    return json_line(score_to_record(row_id, failed)), failed
