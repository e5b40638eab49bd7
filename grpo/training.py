"""One training run: directory, materials, cold start, steps, summary. The entry is grpo.train."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from grpo.coldstart import ColdStartSettings, cold_start, demonstrate
from grpo.config import TrainConfig, cold_start_hash, config_hash, to_yaml
from grpo.display import StepDisplay, print_headline, print_health
from grpo.materials import Materials, gather_materials
from grpo.models import save_policy
from grpo.outer import with_own_reward
from grpo.output_dir import check_folder
from grpo.pages import keep_freed_memory
from grpo.plan import show_plan, start_notes
from grpo.rollout.local import pad_id
from grpo.run import Run
from grpo.rundir import RunDir, RunRecord, RunSummary, open_job, open_run
from grpo.session import make_accelerator, make_session
from grpo.sweep import report_job
from rewards.prepared import cache_folder


def train(config: TrainConfig, *, job: bool = False) -> RunSummary | None:
    """Runs one configuration to its end and returns its summary; a dry run has none.

    Args:
        config: checked.
        job: one of a sweep, whose directory is named by its configuration alone: a finished one is skipped.
    """
    keep_freed_memory()
    accelerator = make_accelerator(config)
    main_process = accelerator.is_main_process
    with StepDisplay(config.steps) as display:
        if config.dry_run:
            check_folder(Path(config.output_dir).absolute())
            materials = gather_materials(config)
            if main_process:
                show_plan(config, materials, display.console)
            return None
        run = _open(config, job=job) if main_process else None
        path, done = _share(run, accelerator)
        try:
            if run is not None:
                display.say(run.note)
                report_job(run)
            if done is not None:
                return done
            return _train(config, path, run, accelerator=accelerator, display=display)
        finally:
            if run is not None:
                run.close()


def _open(config: TrainConfig, *, job: bool) -> RunDir:
    targets = {name: str(part.scorer["_target_"]) for name, part in config.reward.components.items()}
    record = RunRecord(config.label, to_yaml(config), config_hash(config), config.seed, targets)
    output = Path(config.output_dir)
    return open_job(output, record) if job else open_run(output, record, config.resume)


def _share(run: RunDir | None, accelerator: Accelerator) -> tuple[Path, RunSummary | None]:
    """The run's path and, of a finished run, its summary: on every rank."""
    facts: list[object] = [None if run is None else str(run.path), None if run is None else run.summary()]
    if accelerator.num_processes > 1:
        broadcast_object_list(facts)
    path, summary = facts
    return Path(str(path)), summary if isinstance(summary, RunSummary) else None


def _train(
    config: TrainConfig, path: Path, run: RunDir | None, *, accelerator: Accelerator, display: StepDisplay
) -> RunSummary:
    materials = gather_materials(config)
    if run is not None:
        for note in start_notes(config, materials):
            display.say(note)
    with accelerator.main_process_first():  # the others find it in the cache
        teach_layout(config, materials, display if run is not None else None)
        materials = with_own_reward(config, materials, accelerator, _log(run, display))
    session = make_session(config, materials, accelerator, path, _log(run, display))
    if config.log.trackers:
        accelerator.init_trackers("plumbline")
    this = Run(config, materials, session, path, accelerator=accelerator, display=display)
    this.go()
    summary = RunSummary(config.steps, this.seconds, this.before, this.latest, this.last_reward)
    if run is not None:
        save_policy(materials.policy, materials.tokenizer, path / "model", lora=config.model.lora_rank > 0)
        run.mark_finished(summary)
        print_headline(display.console, this.before, this.latest)
        print_health(display.console, display.health)
        display.say(f"run directory: {path}")
    accelerator.end_training()
    return summary


def _log(run: RunDir | None, display: StepDisplay) -> Callable[[str], None]:
    """Takes a sentence for the log; only the main process, which holds the run, has one."""
    return display.say if run is not None else lambda _: None


def teach_layout(config: TrainConfig, materials: Materials, display: StepDisplay | None) -> None:
    """The cold start, in place, or what an equal one left in the cache; without a display in silence."""
    if config.coldstart.steps == 0:
        return
    steps = config.coldstart.steps

    def report(step: int, loss: float) -> None:
        if display is not None:
            display.phase(f"cold start: step {step}/{steps}, loss {loss:.3f}")
            if step % max(1, steps // 5) == 0:
                display.say(f"cold start {step}/{steps}  loss {loss:.4f}")

    demonstrations = (
        demonstrate(problem, materials.tokenizer, materials.spec) for problem in materials.data.coldstart
    )
    loss, cached = cold_start(
        materials.policy,
        demonstrations,
        ColdStartSettings(steps, config.coldstart.batch_size, config.coldstart.learning_rate, config.seed),
        pad=pad_id(materials.tokenizer),
        cache=cache_folder() / "coldstart" / cold_start_hash(config),
        report=report,
    )
    if display is not None:
        display.say(f"cold start: loss {loss:.4f} a token after {steps} steps{' (cached)' if cached else ''}")
