"""The two sides of bench_step: a process that takes one GRPO step each time it is told to, and reports it.

    python tests/bench/step_sides.py ours|trl '{"tokens": 64, "kl": 0.04, ...}'

Prints one JSON line a step: seconds and processor seconds by phase, peak memory. Both sides see the same
prompts, force every completion to its full length, and pay 1 and 0 in turn, so that every group has signal.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from accelerate import Accelerator
from smollm import smollm_folder
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.utils import logging

from grpo.advantage import AdvantageSettings, outcome_advantages
from grpo.loss import LossSettings
from grpo.pages import keep_freed_memory
from grpo.policy import Policy
from grpo.prompt import EncodedPrompt, encode_prompt
from grpo.reference import FrozenReference
from grpo.rollout.local import LocalEngine, Sampling, pad_id
from grpo.update import Trainable, TrainRow, Updater, UpdateSettings
from rewards.format import FormatSpec
from rewards.types import Problem

QUESTIONS = (
    "A baker fills 14 trays with 12 rolls each and sells 95 rolls before noon. How many rolls are left?",
    "Nora reads 18 pages a day. How many days does she need for a book of 432 pages?",
    "A tank holds 240 litres and loses 3 litres an hour. After how many hours is it three quarters full?",
    "Five friends share 3 pizzas of 10 slices each, and eat the same number. How many slices does each eat?",
    "A train leaves at 9:40 and arrives at 13:05. How many minutes does the journey take?",
    "Tickets cost 7 for children and 12 for adults. What do 4 children and 3 adults pay together?",
    "A rope of 56 metres is cut so that one part is three times as long as the other. How long is it?",
    "Iris saves 35 a week and spends 48 once a month. What has she saved after three months?",
)


@dataclass(frozen=True)
class Case:
    """One setting of the bench. checkpointing and micro_rows: of TRL's side; ours has no such knobs."""

    tokens: int
    precision: str
    kl: float
    prompts: int = 8
    group: int = 8
    prompt_tokens: int = 0
    device: str = "cpu"
    checkpointing: bool = True
    micro_rows: int = 64
    decode_rows: int = 64
    train_tokens: int = 1024


@dataclass
class Meter:
    """Seconds and processor seconds by phase since the last `take`."""

    device: str
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    cpu: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = self._now()
        try:
            yield
        finally:
            end = self._now()
            for place, a, b in zip((self.seconds, self.cpu), start, end, strict=True):
                place[name] = place.get(name, 0.0) + b - a

    def wrap(self, owner: object, name: str, phase: str | Callable[[], str]) -> None:
        """Times every call of owner.name; the bench alone looks into objects like this."""
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.phase(phase if isinstance(phase, str) else phase()):
                return inner(*args, **kwargs)

        setattr(owner, name, timed)

    def take(self) -> dict[str, Any]:
        taken = {"seconds": self.seconds, "cpu": self.cpu, "peak_bytes": peak_bytes(self.device)}
        self.seconds, self.cpu = {}, {}
        return taken

    def _now(self) -> tuple[float, float]:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()


def peak_bytes(device: str) -> int:
    """The most memory this process has held: of the device, or resident."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def prompts_of(case: Case, tokenizer: Any) -> list[EncodedPrompt]:
    """The questions in the chat template, lengthened to `prompt_tokens` where that is set."""
    made: list[EncodedPrompt] = []
    for i in range(case.prompts):
        text = QUESTIONS[i % len(QUESTIONS)]
        prompt = encode_prompt(Problem(f"q{i}", text, ("1",), "number", "bench"), tokenizer, FormatSpec())
        while len(prompt.ids) < case.prompt_tokens:
            text = f"{QUESTIONS[len(text) % len(QUESTIONS)]} {text}"
            prompt = encode_prompt(Problem(f"q{i}", text, ("1",), "number", "bench"), tokenizer, FormatSpec())
        made.append(prompt)
    return made


def ours(case: Case) -> None:
    """Engine and updater as grpo.session builds them, on a model of fp32 weights."""
    keep_freed_memory()
    meter = Meter(case.device)
    folder = smollm_folder()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    precision = torch.bfloat16 if case.precision == "bf16" else torch.float32
    policy = Policy(model, temperature=1.0, precision=precision).to(case.device)
    accelerator = Accelerator(cpu=case.device == "cpu")
    reference = FrozenReference(policy) if case.kl else None
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    engine = LocalEngine(policy, tokenizer, decode_rows=case.decode_rows)
    engine.stop_ids = torch.tensor([], dtype=torch.long)  # every completion at its full length
    prepared, prepared_optimizer = accelerator.prepare(policy, optimizer)
    updater = Updater(
        Trainable(prepared, prepared_optimizer, scheduler),
        UpdateSettings(
            "sequence_mean", case.tokens, case.group, 1, 1.0, micro_batch_tokens=case.train_tokens
        ),
        LossSettings(kl_coefficient=case.kl),
        accelerator=accelerator,
        reference=reference,
        pad_id=pad_id(tokenizer),
    )
    meter.wrap(prepared, "forward", "forward")
    meter.wrap(accelerator, "backward", "backward")
    meter.wrap(optimizer, "step", "optimizer")
    if reference is not None:
        meter.wrap(reference, "logprobs", "reference")
    prompts = prompts_of(case, tokenizer)
    for step in steps():
        with meter.phase("step"):
            with meter.phase("rollout"):
                sampling = Sampling(f"bench/{step}", case.group, case.tokens)
                groups = [group for batch in engine.generate(prompts, sampling) for group in batch]
            rewards = torch.tensor([[float(i % 2) for i in range(case.group)]] * case.prompts).double()
            advantages = outcome_advantages(rewards, AdvantageSettings()).values
            rows = [
                TrainRow(p, c.token_ids, torch.full((case.tokens,), float(advantages[p, g])), c.logprobs)
                for p, group in enumerate(groups)
                for g, c in enumerate(group.completions)
            ]
            assert all(len(row.token_ids) == case.tokens for row in rows)
            metrics = updater.update([group.prompt_ids for group in groups], rows)
        report(meter, metrics["loss"], sum(len(p.ids) for p in prompts))


def theirs(case: Case) -> None:
    """TRL's GRPOTrainer with its own defaults (gradient checkpointing among them)."""
    from datasets import Dataset  # the other side does not need them
    from trl import GRPOConfig, GRPOTrainer

    meter = Meter(case.device)
    folder = str(smollm_folder())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = prompts_of(case, tokenizer)
    rows = case.prompts * case.group
    with tempfile.TemporaryDirectory() as output:
        settings = GRPOConfig(
            output_dir=output,
            max_steps=1000,
            per_device_train_batch_size=min(case.micro_rows, rows),
            gradient_accumulation_steps=max(1, rows // case.micro_rows),
            num_generations=case.group,
            max_completion_length=case.tokens,
            generation_kwargs={"min_new_tokens": case.tokens},
            beta=case.kl,
            bf16=case.precision == "bf16",
            use_cpu=case.device == "cpu",
            gradient_checkpointing=case.checkpointing,
            shuffle_dataset=False,
            report_to=[],
            logging_steps=1,
            disable_tqdm=True,
            save_strategy="no",
        )
        trainer = GRPOTrainer(
            model=folder,
            reward_funcs=lambda completions, **_: [float(i % 2) for i in range(len(completions))],
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": [prompt.text for prompt in prompts]}),
            processing_class=tokenizer,
            callbacks=[_Told(meter, sum(len(p.ids) for p in prompts))],
        )
        meter.wrap(trainer, "_generate", "rollout")
        meter.wrap(
            trainer,
            "_get_per_token_logps_and_entropies",
            lambda: "forward" if torch.is_grad_enabled() else "reference",
        )
        meter.wrap(trainer.accelerator, "backward", "backward")
        trainer.train()


class _Told(TrainerCallback):
    """Lets the trainer take a step only when told to."""

    def __init__(self, meter: Meter, prompt_tokens: int) -> None:
        self.meter = meter
        self.prompt_tokens = prompt_tokens
        self.steps = steps()
        self.started = (0.0, 0.0)
        self.loss = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.meter.wrap(kwargs["optimizer"], "step", "optimizer")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if next(self.steps, None) is None:
            raise SystemExit(0)
        self.started = (time.perf_counter(), time.process_time())

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.meter.seconds["step"] = time.perf_counter() - self.started[0]
        self.meter.cpu["step"] = time.process_time() - self.started[1]
        report(self.meter, self.loss, self.prompt_tokens)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.loss = kwargs["logs"].get("loss", self.loss)


def steps() -> Iterator[int]:
    """Numbers of steps, one for each line on standard input."""
    yield from (i for i, _ in enumerate(sys.stdin))


def report(meter: Meter, loss: float, prompt_tokens: int) -> None:
    """One line for the driver, on the stream it reads."""
    print("@" + json.dumps(meter.take() | {"loss": loss, "prompt_tokens": prompt_tokens}), flush=True)


if __name__ == "__main__":
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    side, settings = sys.argv[1:]
    {"ours": ours, "trl": theirs}[side](Case(**json.loads(settings)))
