"""Rollouts kept on disk, to train on them again without sampling: another reward, credit or algorithm.

A step is one file, `step_000001.parquet`, a row per completion: problem_id, index in its group, prompt_ids,
token_ids, logprobs (float32, exactly those of the sampler), truncated, prefill, temperature. Text is decoded
from the ids and scores are computed anew. With another reward the policy leaves the one that sampled from the
first update on: `algorithm.importance_cap` corrects for it, `sampling/...` shows it. Knows nothing of models
or rewards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from grpo.collect import Engine
from grpo.offsets import Decode
from grpo.prompt import EncodedPrompt
from grpo.rollout.local import Sampling
from grpo.types import Completion, RolloutGroup
from rewards.durable import sync, write_whole
from rewards.errors import DataError
from rewards.types import Sample

FOLDER = "rollouts"
"""Of a run's directory."""

_SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("index", pa.int32()),
        ("prompt_ids", pa.list_(pa.int64())),
        ("token_ids", pa.list_(pa.int64())),
        ("logprobs", pa.list_(pa.float32())),
        ("truncated", pa.bool_()),
        ("prefill", pa.string()),
        ("temperature", pa.float64()),
    ]
)
_REMEDIES = {
    "a replay": "a replay needs the data, seed and rollout.prompts_per_step of the run that saved the "
    "rollouts",
    "dynamic sampling": "dynamic sampling asks for more groups than were saved; set "
    "algorithm.dynamic_sampling_rounds=0, or use the reward and rounds of the run that saved the rollouts",
}
_NAME = re.compile(r"step_(\d{6,})\.parquet")


@dataclass(frozen=True, slots=True)
class SavedCompletion:
    """A row of a file; see the module."""

    problem_id: str
    index: int
    prompt_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    truncated: bool
    prefill: str
    temperature: float


class Recorder:
    """An engine that samples through another and remembers the groups until they are taken.

    Dynamic sampling replaces groups; those are remembered too, for a replay samples what the run sampled.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._groups: list[RolloutGroup] = []

    def generate(self, prompts: Sequence[EncodedPrompt], sampling: Sampling) -> Iterator[list[RolloutGroup]]:
        """What the engine yields."""
        for groups in self.engine.generate(prompts, sampling):
            self._groups.extend(groups)
            yield groups

    def take(self) -> list[RolloutGroup]:
        """The groups since the last call, and forgets them."""
        taken, self._groups = self._groups, []
        return taken


class SavedRollouts:
    """An engine that samples nothing: it serves the stored groups of the step it is asked for.

    Args:
        folder: with a file for each step, such as RUN/rollouts.
        decode: token ids -> text, as the samples were decoded.
        temperature: that the trainer takes log-probs at; those in the files must be of the same.
    """

    def __init__(self, folder: Path, decode: Decode, *, temperature: float) -> None:
        self.folder = folder
        self.decode = decode
        self.temperature = temperature
        self._step: int | None = None
        self._rows: dict[str, list[SavedCompletion]] = {}

    def generate(self, prompts: Sequence[EncodedPrompt], sampling: Sampling) -> Iterator[list[RolloutGroup]]:
        """The groups of the prompts in step `sampling.version`, at once.

        Raises:
            DataError: the step, a problem or a completion is not there, or a prompt is encoded otherwise now.
        """
        again = self._step == sampling.version
        checked = self.check(prompts, sampling, "dynamic sampling" if again else "a replay")
        yield [
            self._group(place, prompt, rows, sampling)
            for place, (prompt, rows) in enumerate(zip(prompts, checked, strict=True))
        ]

    def check(
        self, prompts: Sequence[EncodedPrompt], sampling: Sampling, who: str = "a replay"
    ) -> list[list[SavedCompletion]]:
        """The stored rows of each prompt in step `sampling.version`; whatever is wrong with them is raised.

        Args:
            prompts: of the step.
            sampling: what is asked for.
            who: asks for them: a replay, or dynamic sampling for more groups of the same step.

        Raises:
            DataError: as `generate`.
        """
        if self._step != sampling.version:
            self._rows = read_rollouts(self.folder, sampling.version)
            self._step = sampling.version
        return [self._checked(prompt, sampling, who) for prompt in prompts]

    def _group(
        self, place: int, prompt: EncodedPrompt, rows: Sequence[SavedCompletion], sampling: Sampling
    ) -> RolloutGroup:
        completions = []
        for row in rows:
            ids = row.token_ids
            sample = Sample(
                prompt.problem,
                self.decode(ids if row.truncated else ids[:-1]),  # text without the stop id
                prefill=row.prefill,
                truncated=row.truncated,
                group=place,
                index=row.index,
                policy_version=sampling.version,
            )
            logprobs = torch.tensor(row.logprobs, dtype=torch.float32)
            completions.append(Completion(sample, torch.tensor(ids, dtype=torch.long), logprobs))
        return RolloutGroup(prompt.problem, prompt.ids, tuple(completions))

    def _checked(self, prompt: EncodedPrompt, sampling: Sampling, who: str) -> list[SavedCompletion]:
        """The stored rows of the problem: as many as asked for, of this prompt, within the limit."""
        identity, where = prompt.problem.id, f"{step_file(self.folder, sampling.version)}: problem"
        rows = self._rows.get(identity)
        if rows is None:
            raise DataError(f"{where} {identity!r} is not among its {len(self._rows)}: {_REMEDIES[who]}")
        chosen = rows[: sampling.group_size]
        if (sampled_at := chosen[0].temperature) != self.temperature:
            raise DataError(
                f"{where} {identity!r} was sampled at temperature {sampled_at}, not {self.temperature}: "
                f"set rollout.temperature={sampled_at}, or its log-probs would be compared with others"
            )
        if [row.index for row in chosen] != list(range(sampling.group_size)):
            raise DataError(
                f"{where} {identity!r} has {len(rows)} completions, expected {sampling.group_size}: "
                f"set rollout.group_size={len(rows)}"
            )
        if any(row.prompt_ids != prompt.ids.tolist() for row in chosen):
            raise DataError(
                f"{where} {identity!r} was sampled from another prompt: a replay needs the model's tokenizer "
                "and the format of the run that saved the rollouts"
            )
        longest = max(len(row.token_ids) for row in chosen)
        if longest > sampling.max_tokens:
            raise DataError(
                f"{where} {identity!r} has a completion of {longest} tokens: set "
                f"rollout.max_completion_tokens={longest} or more"
            )
        return chosen


def write_rollouts(folder: Path, step: int, groups: Sequence[RolloutGroup], *, temperature: float) -> Path:
    """Writes the groups of a step, all there is to train on them again, whole; returns the file.

    temperature: that they were sampled at.
    """
    if not folder.is_dir():
        folder.mkdir()
        sync(folder.parent)
    rows = [_row(group, completion, temperature) for group in groups for completion in group.completions]
    table = pa.Table.from_pylist([asdict(row) for row in rows], _SCHEMA)
    path = step_file(folder, step)
    write_whole(path, lambda beside: pq.write_table(table, beside))
    return path


def read_rollouts(folder: Path, step: int) -> dict[str, list[SavedCompletion]]:
    """The rows of a step by problem id, in the order of the file: that of their index.

    Raises:
        DataError: there is no such file, or it is none of ours.
    """
    path = step_file(folder, step)
    check_rollouts(folder, step, step)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: cannot be read as parquet ({str(error).splitlines()[0]})") from error
    if missing := [name for name in _SCHEMA.names if name not in table.column_names]:
        raise DataError(f"{path}: no column {', '.join(missing)}: expected a file that rollout.dump wrote")
    rows: dict[str, list[SavedCompletion]] = {}
    for content in table.select(_SCHEMA.names).to_pylist():
        row = SavedCompletion(**content)
        rows.setdefault(row.problem_id, []).append(row)
    return rows


def check_rollouts(folder: Path, first: int, last: int) -> None:
    """Refuses, before anything is trained, a folder that lacks one of the steps.

    Raises:
        DataError: naming the steps that are there.
    """
    names = folder.iterdir() if folder.is_dir() else ()
    found = sorted(int(match[1]) for path in names if (match := _NAME.fullmatch(path.name)))
    if not found:
        raise DataError(f"rollout.replay={folder}: expected a folder with step_000001.parquet and so on")
    missing = sorted(set(range(first, last + 1)) - set(found))
    if missing:
        raise DataError(
            f"rollout.replay={folder}: step {missing[0]} is missing, {len(found)} steps between {found[0]} "
            f"and {found[-1]} are there: lower steps, or give the folder of a longer run"
        )


def step_file(folder: Path, step: int) -> Path:
    """Where the rollouts of a step are."""
    return folder / f"step_{step:06d}.parquet"


def _row(group: RolloutGroup, completion: Completion, temperature: float) -> SavedCompletion:
    return SavedCompletion(
        group.problem.id,
        completion.sample.index,
        group.prompt_ids.tolist(),
        completion.token_ids.tolist(),
        completion.logprobs.tolist(),
        completion.sample.truncated,
        completion.sample.prefill,
        temperature,
    )
