"""A run from its first measurement to its last: steps, files, checkpoints, resume.

Knows when things happen and what is written; how a step works is grpo.loop. Everything a step draws is keyed
by its number, so the state of a run is its weights, its optimiser and how far it got.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from grpo import checkpoint
from grpo.alarms import REFIT_TAKEN, Alarm
from grpo.checkpoint import TrainState, capture_rng, restore_rng
from grpo.config import TrainConfig
from grpo.display import StepDisplay, print_samples
from grpo.evaluation import measure
from grpo.loop import StepResult
from grpo.materials import Materials
from grpo.metrics import MetricsWriter, read_metrics
from grpo.prompt import EncodedPrompt
from grpo.rollout.local import Sampling
from grpo.rollout.saved import FOLDER, step_file, write_rollouts
from grpo.session import Session
from grpo.summaries import CompletionRow, completion_rows, summarise_step
from grpo.types import RolloutGroup
from grpo.update import LOSSES, is_broken
from grpo.verdicts import passed, right_answers
from grpo.watch import stop_message
from rewards.errors import EngineError

ACCURACY = "eval/heldout/accuracy"


class Run:
    """One run in its directory.

    Args:
        config, materials, session: what was asked for and what was built from it.
        directory: the run's, made and locked by the caller; written by the main process only.
    """

    def __init__(
        self,
        config: TrainConfig,
        materials: Materials,
        session: Session,
        directory: Path,
        *,
        accelerator: Accelerator,
        display: StepDisplay,
    ) -> None:
        self.config = config
        self.materials = materials
        self.session = session
        self.directory = directory
        self.accelerator = accelerator
        self.display = display
        self.before: dict[str, float] = {}
        self.latest: dict[str, float] = {}
        self.num_tokens = 0
        self.seconds = 0.0
        self.last_reward: float | None = None

    def go(self) -> None:
        """Runs from the newest checkpoint, or from the start, to the last step."""
        start = self._resume()
        writer = self._open_writer(start)
        if start == 0:
            self.before = self._measure(0)
            self.latest = self.before
            self._write(writer, 0, self.before)
            if self.accelerator.is_main_process and ACCURACY in self.before:
                self.display.say(f"before the first step: held-out accuracy {self.before[ACCURACY]:.3f}")
            self._save(0)
        for step in range(start + 1, self.config.steps + 1):
            self._step(step, writer)
        if writer is not None:
            writer.close()

    def _step(self, step: int, writer: MetricsWriter | None) -> None:
        self._phase(f"step {step}: rollout, scores, update")
        result = self.session.loop.step(step, self._prompts(step), lambda round_: self._reserve(step, round_))
        self._keep_rollouts(step, result)
        right = right_answers(self.materials.judges.accuracy, result.groups, result.scores)
        rows = self._rows(result, right)
        metrics = self._metrics(result, rows)
        if self._is_due(step, self.config.eval.every):
            self.latest = self._measure(step)
            metrics |= self.latest
        scorer = self.session.loop.collector.scorer
        observed = self.session.watch.observe(step, result.groups, rows, metrics, scorer)
        metrics |= observed.metrics
        metrics |= self._iterate(step, result, right, alarmed=bool(observed.alarms))
        self._write(writer, step, metrics)
        if writer is not None:
            writer.write_completions(step, [row for group in rows for row in group])
            self.display.step(step, metrics)
            if self._is_due(step, self.config.eval.every) and self.config.log.completions:
                print_samples(
                    self.display.console, [group[0] for group in rows[: self.config.log.completions]]
                )
        self._heed(step, observed.alarms)
        if self._is_due(step, self.config.checkpoint.every):
            self._save(step)

    def _iterate(
        self, step: int, result: StepResult, right: Sequence[Sequence[bool | None]], *, alarmed: bool
    ) -> dict[str, float]:
        """The step's part in the loop around it; ends the round where an alarm asks for a refit."""
        iteration = self.session.iteration
        if iteration is None:
            return {}
        iteration.keep(result.groups, result.scores, right)
        refit = alarmed and self.config.watch.on_alarm == "refit"
        self._phase(f"step {step}: replay, reference, reward model")
        metrics = iteration.end_step(step, last=step == self.config.steps, refit=refit)
        if metrics.get(REFIT_TAKEN):
            self.session.watch.restart()
        return metrics

    def _heed(self, step: int, alarms: Sequence[Alarm]) -> None:
        """Says what the watch found.

        Raises:
            EngineError: with watch.on_alarm=stop. The step leaves no checkpoint, so that the same command
                meets the same alarm again.
        """
        if self.accelerator.is_main_process:
            for alarm in alarms:
                self.display.say(f"alarm: {alarm.text}")
        if alarms and self.config.watch.on_alarm == "stop":
            raise EngineError(stop_message(step, alarms))

    def _keep_rollouts(self, step: int, result: StepResult) -> None:
        """Writes what all ranks sampled, where asked for or where an update broke; that may end the run.

        Raises:
            EngineError: the loss or the gradient was not finite, with optim.on_nonfinite=stop.
        """
        sampled, broken = self.session.recorder.take(), is_broken(result.metrics)
        if self.config.rollout.dump or broken:
            everywhere: list[RolloutGroup] = gather_object(sampled)
            if self.accelerator.is_main_process:
                write_rollouts(self.directory / FOLDER, step, everywhere)
        if broken and self.config.optim.on_nonfinite == "stop":
            values = [f"{name} {result.metrics[name]:g}" for name in LOSSES if name in result.metrics]
            raise EngineError(
                f"step {step}: {', '.join(values)}: not finite, the update was left out. Its rollouts are in "
                f"{step_file(self.directory / FOLDER, step)}. Lower optim.learning_rate, or go on after such "
                "updates with optim.on_nonfinite=skip"
            )

    def _is_due(self, step: int, every: int) -> bool:
        return step == self.config.steps or (every > 0 and step % every == 0)

    def _prompts(self, step: int) -> list[EncodedPrompt]:
        """This rank's share of the step's prompts: whole groups stay on a rank."""
        return self._share(self.session.order.batch(step - 1, self._batch_size()))

    def _reserve(self, step: int, round_: int) -> list[EncodedPrompt]:
        """This rank's further prompts for a round of dynamic sampling."""
        rounds = self.config.algorithm.dynamic_sampling_rounds
        return self._share(self.session.reserve.batch((step - 1) * rounds + round_ - 1, self._batch_size()))

    def _batch_size(self) -> int:
        """Prompts a step over all ranks, equally many on each."""
        ranks = self.accelerator.num_processes
        return self.config.rollout.prompts_per_step // ranks * ranks

    def _share(self, chosen: Sequence[int]) -> list[EncodedPrompt]:
        size = len(chosen) // self.accelerator.num_processes
        mine = chosen[self.accelerator.process_index * size :][:size]
        return [self.materials.train_prompts[i] for i in mine]

    def _rows(self, result: StepResult, right: Sequence[Sequence[bool | None]]) -> list[list[CompletionRow]]:
        """The completions of all ranks, a list per group; right: (P, G) the verifier's word on ours."""
        formatted = passed(self.materials.judges.layout, result.groups)
        advantages: list[list[float]] = result.advantages.values.tolist()
        moving: list[list[bool]] = result.moving.tolist()
        return gather_object(
            completion_rows(result.groups, result.scores, advantages, moving, right, formatted)
        )

    def _metrics(self, result: StepResult, rows: Sequence[Sequence[CompletionRow]]) -> dict[str, float]:
        flat = [row for group in rows for row in group]
        tokens = sum(len(row.token_ids) for row in flat)
        effective = sum(len(row.token_ids) for row in flat if row.moves)
        self.num_tokens += tokens
        seconds = result.timings.seconds
        self.seconds += seconds["step"]
        metrics = summarise_step(rows) | result.metrics
        self.last_reward = metrics.get("reward")
        metrics["num_tokens"] = float(self.num_tokens)
        metrics |= {f"timing_s/{name}": value for name, value in seconds.items()}
        metrics["perf/tokens_per_s"] = tokens / seconds["step"]
        metrics["perf/effective_tokens_per_s"] = effective / seconds["step"]
        if self.accelerator.device.type == "cuda":
            metrics["perf/peak_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
        return metrics

    def _measure(self, step: int) -> dict[str, float]:
        self._phase(f"step {step}: held-out problems")
        start = time.perf_counter()
        sampling = Sampling(
            f"{self.config.seed}/eval",
            self.config.eval.samples,
            self.config.rollout.max_completion_tokens,
            version=step,
        )
        metrics = measure(
            self.session.engine,
            self.materials.heldout_prompts,
            self.materials.judges,
            sampling=sampling,
            accelerator=self.accelerator,
        )
        return metrics | {"timing_s/eval": time.perf_counter() - start}

    def _resume(self) -> int:
        """Loads the newest checkpoint, if any; returns the last step it covers."""
        found = checkpoint.load_latest(self.directory / "checkpoints")
        if found is None:
            return 0
        for note in found.notes if self.accelerator.is_main_process else ():
            self.display.say(note)
        learners = self.session.learners
        trainable = learners.updater.trainable
        self.materials.policy.load_state_dict(found.weights)
        trainable.optimizer.load_state_dict(found.optimizer)
        trainable.scheduler.load_state_dict(found.scheduler)
        if learners.critic is not None:
            learners.critic.load_state(found.critic)
        if learners.penalty is not None:
            learners.penalty.coefficient = found.counters["kl_coefficient"]
        iteration = self.session.iteration
        if iteration is not None:
            iteration.restore(found.path, found.counters["iteration"], found.reference)
        restore_rng(found.rng)
        self.session.watch.restore(read_metrics(self.directory / "metrics.jsonl"), found.step)
        self.num_tokens = found.counters["num_tokens"]
        self.seconds = found.counters["seconds"]
        self.last_reward = found.counters["last_reward"]
        self.before = found.counters["before"]
        self.latest = found.counters["latest"]
        return found.step

    def _save(self, step: int) -> None:
        self.accelerator.wait_for_everyone()
        if not self.accelerator.is_main_process:
            return
        self._phase(f"step {step}: checkpoint")
        learners, iteration = self.session.learners, self.session.iteration
        trainable = learners.updater.trainable
        evaluated = step == 0 or self._is_due(step, self.config.eval.every)
        folder = self.directory / "checkpoints"
        checkpoint.save(
            folder,
            step,
            TrainState(
                weights=self.materials.policy.state_dict(),
                optimizer=trainable.optimizer.state_dict(),
                scheduler=trainable.scheduler.state_dict(),
                critic=learners.critic.state() if learners.critic is not None else {},
                # Without an outer loop the reference is the policy as the cold start left it.
                reference=iteration.reference_state() if iteration is not None else {},
                rng=capture_rng(),
                counters={
                    "num_tokens": self.num_tokens,
                    "seconds": self.seconds,
                    "last_reward": self.last_reward,
                    "kl_coefficient": learners.penalty.coefficient if learners.penalty is not None else None,
                    "iteration": iteration.state() if iteration is not None else None,
                    "before": self.before,
                    "latest": self.latest,
                },
                score=self.latest.get(ACCURACY) if evaluated else None,
                extra=(self._save_shape, *([iteration.save] if iteration is not None else [])),
            ),
        )
        checkpoint.prune(folder, self.config.checkpoint.keep_last, int(self.config.checkpoint.keep_best))
        if iteration is not None:
            iteration.tidy()

    def _save_shape(self, folder: Path) -> None:
        """What lets `from_pretrained` read a checkpoint."""
        self.materials.policy.model.config.save_pretrained(folder)
        self.materials.tokenizer.save_pretrained(folder)

    def _open_writer(self, covered: int) -> MetricsWriter | None:
        if not self.accelerator.is_main_process:
            return None
        forward = self.accelerator.log if self.config.log.trackers else None
        return MetricsWriter(self.directory, covered if covered else -1, forward)

    def _write(self, writer: MetricsWriter | None, step: int, metrics: dict[str, float]) -> None:
        if writer is not None:
            writer.write(step, metrics)

    def _phase(self, text: str) -> None:
        if self.accelerator.is_main_process:
            self.display.phase(text)
