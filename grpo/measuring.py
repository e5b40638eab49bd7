"""One evaluation: model and problems, samples, judgements, figures, a folder. The entry is grpo.evaluate.

What is right is decided by the accuracy verifier under the given format, whatever scorer chooses among the
samples. With the seed, data and limits of a run, problems and draws are those of its own measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import torch
import yaml
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from grpo.collect import score_completions
from grpo.config import ModelConfig
from grpo.data import describe_faults, draw, load_problems, load_run_data
from grpo.display import print_samples
from grpo.evaluate_config import EvaluateConfig
from grpo.evaluation import Judges
from grpo.measures import Answers, Intervals, Judged, measures, sample_counts
from grpo.models import load_policy
from grpo.prompt import EncodedPrompt, encode_prompts
from grpo.results import SampleRow, print_measures, write_results
from grpo.rollout.local import LocalEngine, Sampling
from grpo.summaries import CompletionRow
from grpo.types import Completion, RolloutGroup
from rewards.agreement import answer_of, equivalence_classes, same_answer
from rewards.build import build, build_scorer
from rewards.compare import visible
from rewards.errors import ConfigError, DataError
from rewards.format import FormatSpec
from rewards.intervals import Interval
from rewards.prepared import cache_folder
from rewards.scorer import Scorer
from rewards.types import Part, Problem, Score
from rewards.verifiers.accuracy import AccuracyVerifier
from rewards.verifiers.think_format import ThinkFormatVerifier


def evaluate(config: EvaluateConfig) -> dict[str, Interval]:
    """Measures, prints and keeps; returns the figures by name.

    Raises:
        ConfigError, DataError: naming the option or the row and the fix.
    """
    console = Console()
    spec: FormatSpec = build(config.format)
    accuracy = AccuracyVerifier(spec)
    scorer = build_scorer(config.reward) if config.reward.components else None
    prompts, engine, notes = _load(config, spec)
    for note in notes:
        console.print(Text(visible(note, tail=len(note))), soft_wrap=True)
    groups = _sample(engine, prompts, config, console)
    rows = _judge(groups, Judges(accuracy, ThinkFormatVerifier(spec)), scorer)
    answers = [_answers(group, own, accuracy) for group, own in zip(groups, rows, strict=True)]
    found = measures(
        answers,
        sample_counts(config.sampling.samples),
        Intervals(config.estimate.level, config.estimate.resamples, config.seed),
        chosen=scorer is not None,
    )
    kept = [
        SampleRow(row, judged.answer, greedy=i == 0)
        for answer, own in zip(answers, rows, strict=True)
        for i, (row, judged) in enumerate(zip(own, (answer.greedy, *answer.samples), strict=True))
    ]
    folder = write_results(config, found, kept)
    print_measures(console, found, config)
    print_samples(console, [own[0] for own in rows[: config.show]], "greedy completions")
    console.print(Text(f"kept in {folder}"), soft_wrap=True)
    return found


@dataclass(frozen=True, slots=True)
class _Sampled:
    """The completions of one problem."""

    problem: Problem
    greedy: Completion
    samples: tuple[Completion, ...]

    @property
    def all(self) -> tuple[Completion, ...]:
        """The greedy one first."""
        return (self.greedy, *self.samples)


def _load(config: EvaluateConfig, spec: FormatSpec) -> tuple[list[EncodedPrompt], LocalEngine, list[str]]:
    problems, notes = _problems(config)
    model = ModelConfig("hub", config.model.path, config.model.precision, False, 0, None, None, None)
    loaded = load_policy(
        model, spec, temperature=config.sampling.temperature, seed=config.seed, entropy_gradient=False
    )
    limit = config.data.max_prompt_tokens
    prompts, too_long = encode_prompts(problems, loaded.tokenizer, spec, max_tokens=limit)
    if not prompts:
        raise DataError(
            f"all {len(problems)} prompts are longer than data.max_prompt_tokens={limit}: raise it"
        )
    if too_long:
        notes.append(f"{len(too_long)} of {len(problems)} prompts left out: over {limit} tokens")
    policy = loaded.policy.to(_device(config.device))
    engine = LocalEngine(policy, loaded.tokenizer, decode_rows=config.sampling.decode_rows)
    return prompts, engine, [*notes, *loaded.notes, *_other_format(config)]


def _problems(config: EvaluateConfig) -> tuple[Sequence[Problem], list[str]]:
    """The problems to measure: those a run holds out, or those of a file of one's own."""
    data = config.data
    if data.dataset != "jsonl":
        loaded = load_run_data(data, config.seed, cache_folder())
        return loaded.evaluation, list(loaded.faults)
    path = Path(str(data.eval_path or data.path)).expanduser()
    own = load_problems(path, strict=data.strict, max_invalid_share=data.max_invalid_share)
    chosen = draw(own.problems, data.eval_size, config.seed)
    notes = describe_faults(own.faults, path)
    if len(chosen) < len(own.problems):
        notes.append(f"{path}: {len(chosen)} of {len(own.problems)} problems (data.eval_size)")
    return chosen, notes


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device={name}: no CUDA device here; use device=auto or device=cpu")
    return torch.device(name)


def _other_format(config: EvaluateConfig) -> Iterator[str]:
    """Says so when the model comes from a run that trained another format: it would be misjudged."""
    for run in list(Path(config.model.path).absolute().parents)[:2]:
        if (run / "manifest.json").is_file() and (run / "config.yaml").is_file():
            trained = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))["format"]
            if trained != config.format:
                yield f"this model was trained for another format than is measured: {run / 'config.yaml'}"


def _sample(
    engine: LocalEngine, prompts: Sequence[EncodedPrompt], config: EvaluateConfig, console: Console
) -> list[_Sampled]:
    settings = config.sampling
    key, limit = f"{config.seed}/eval", settings.max_completion_tokens
    kinds = {
        "greedy": Sampling(key, 1, limit, greedy=True),
        "samples": Sampling(key, settings.samples, limit),
    }
    groups: dict[str, list[RolloutGroup]] = {}
    with Progress(console=console, disable=not console.is_terminal) as bar:
        for name, sampling in kinds.items():
            task = bar.add_task(name, total=len(prompts))
            groups[name] = []
            for batch in engine.generate(prompts, sampling):
                groups[name].extend(batch)
                bar.advance(task, len(batch))
    return [
        _Sampled(greedy.problem, greedy.completions[0], sampled.completions)
        for greedy, sampled in zip(groups["greedy"], groups["samples"], strict=True)
    ]


def _judge(groups: Sequence[_Sampled], judges: Judges, scorer: Scorer | None) -> list[list[CompletionRow]]:
    """Rows by problem, the greedy one first.

    Their score is the scorer's, or accuracy's where there is none; accuracy and format are its first parts.
    """
    as_groups = [RolloutGroup(g.problem, torch.empty(0, dtype=torch.long), g.all) for g in groups]
    right = iter(score_completions(judges.accuracy, as_groups))
    layout = iter(score_completions(judges.layout, as_groups))
    chosen = iter(score_completions(scorer or judges.accuracy, as_groups))
    return [
        [
            CompletionRow(
                group.problem,
                completion.sample.text,
                tuple(completion.token_ids.tolist()),
                completion.sample.truncated,
                _measured(next(chosen), next(right), next(layout)),
                nan,
            )
            for completion in group.all
        ]
        for group in groups
    ]


def _measured(score: Score, right: Score, layout: Score) -> Score:
    own = (Part("accuracy", 1.0, right), Part("format", 0.0, layout))
    names = {part.name for part in own}
    others = tuple(part for part in score.parts if part.name not in names)
    return Score(
        score.verdict, score.value, score.reason, score.steps, own + others, score.version, score.notes
    )


def _answers(group: _Sampled, rows: Sequence[CompletionRow], verifier: AccuracyVerifier) -> Answers:
    kind = group.problem.answer_type
    answers = [answer_of(completion.sample, verifier) for completion in group.all]
    classes = equivalence_classes(answers, lambda a, b: same_answer(a, b, kind, verifier))
    judged = [_judged(row, answer) for row, answer in zip(rows, classes, strict=True)]
    return Answers(judged[0], tuple(judged[1:]))


def _judged(row: CompletionRow, answer: int | None) -> Judged:
    right, layout = (part.score.value for part in row.score.parts[:2])
    return Judged(
        None if right is None else right > 0,
        answer,
        row.score.value,
        None if layout is None else layout > 0,
        len(row.token_ids),
        row.truncated,
    )
