"""Checkpoints: whole or absent, read back to the bit, pruned without ever losing the last one."""

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from grpo.checkpoint import FORMAT, TrainState, capture_rng, list_steps, load_latest, prune, restore_rng, save
from rewards.errors import ConfigError, EngineError

SAVER = """
import sys
from pathlib import Path
import torch
from grpo.checkpoint import TrainState, save
step = int(sys.argv[2])
while True:
    step += 1
    weights = {f"w{i}": torch.full((64, 64), float(step)) for i in range(64)}
    save(Path(sys.argv[1]), step, TrainState(weights, {}, {}, {}, counters={"step": step}))
    print(step, flush=True)
"""


class Tied(nn.Module):
    """An embedding whose weights are also the output head's, as in small language models."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.middle = nn.Linear(3, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.middle(self.embedding(ids)))


def _state(value: float = 1.0, score: float | None = None) -> TrainState:
    return TrainState(
        weights={"w": torch.full((2, 2), value)},
        optimizer={},
        scheduler={},
        rng={},
        counters={"position": [3, 4]},
        score=score,
    )


def _train(
    model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: torch.optim.lr_scheduler.LRScheduler
) -> None:
    """One step on inputs and targets drawn from the global random state."""
    ids = torch.randint(0, 5, (4,))
    loss = nn.functional.cross_entropy(model(ids), torch.randint(0, 5, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()


def _setup() -> tuple[Tied, torch.optim.AdamW, torch.optim.lr_scheduler.LambdaLR]:
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


def test_training_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, optimizer, scheduler = _setup()
    for _ in range(3):
        _train(model, optimizer, scheduler)
    save(
        tmp_path,
        3,
        TrainState(model.state_dict(), optimizer.state_dict(), scheduler.state_dict(), capture_rng()),
    )
    for _ in range(3):
        _train(model, optimizer, scheduler)

    torch.manual_seed(99)
    again, optimizer_again, scheduler_again = _setup()
    loaded = load_latest(tmp_path)
    assert loaded is not None
    assert loaded.step == 3
    again.load_state_dict(loaded.weights)
    optimizer_again.load_state_dict(loaded.optimizer)
    scheduler_again.load_state_dict(loaded.scheduler)
    restore_rng(loaded.rng)
    for _ in range(3):
        _train(again, optimizer_again, scheduler_again)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    assert scheduler_again.get_last_lr() == scheduler.get_last_lr()


def test_tied_weights_are_stored_once_and_come_back_under_both_names(tmp_path: Path) -> None:
    model = Tied()
    path = save(tmp_path, 1, TrainState(model.state_dict(), {}, {}, {}))
    one_copy = sum(tensor.numel() * 4 for tensor in model.parameters())
    assert one_copy <= (path / "model.safetensors").stat().st_size < one_copy + 5 * 3 * 4 + 600
    loaded = load_latest(tmp_path)
    assert loaded is not None
    assert torch.equal(loaded.weights["head.weight"], loaded.weights["embedding.weight"])
    assert list(Tied().load_state_dict(loaded.weights).missing_keys) == []


def test_views_transposes_and_empty_tensors_come_back_equal(tmp_path: Path) -> None:
    base = torch.arange(12.0).view(3, 4)
    weights = {
        "row": base[1],
        "column": base[:, 2],
        "whole": base,
        "flat": base.view(-1),
        "turned": base.T,
        "none": torch.empty(0, 3),
        "nothing": torch.empty(0, 3),
    }
    save(tmp_path, 1, TrainState(weights, {}, {}, {}))
    loaded = load_latest(tmp_path)
    assert loaded is not None
    for name, tensor in weights.items():
        assert torch.equal(loaded.weights[name], tensor), name


def test_a_saved_model_loads_with_from_pretrained(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=11,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    extra = (model.config.save_pretrained,)
    path = save(tmp_path, 7, TrainState(model.state_dict(), {}, {}, {}, extra=extra))
    again = AutoModelForCausalLM.from_pretrained(path)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(ids).logits, again(ids).logits)


def test_random_states_come_back(tmp_path: Path) -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    random.gauss(0, 1)  # leaves a cached second value
    np.random.standard_normal()
    save(tmp_path, 1, TrainState({}, {}, {}, capture_rng()))
    expected = [random.gauss(0, 1), random.random(), np.random.standard_normal(), torch.rand(3).tolist()]
    loaded = load_latest(tmp_path)
    assert loaded is not None
    restore_rng(loaded.rng)
    assert [
        random.gauss(0, 1),
        random.random(),
        np.random.standard_normal(),
        torch.rand(3).tolist(),
    ] == expected


def test_random_states_of_other_devices_are_refused() -> None:
    state = capture_rng()
    state["cuda"] = [*state["cuda"], torch.zeros(16, dtype=torch.uint8)]
    with pytest.raises(EngineError, match="CUDA devices"):
        restore_rng(state)


def test_counters_and_leftovers_are_told(tmp_path: Path) -> None:
    save(tmp_path, 10, _state())
    (tmp_path / ".writing-step_000020").mkdir()
    (tmp_path / ".writing-step_000020" / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".deleting-step_000005").mkdir()
    loaded = load_latest(tmp_path)
    assert loaded is not None
    assert loaded.step == 10
    assert loaded.counters == {"position": [3, 4]}
    assert loaded.notes == (
        "removed .deleting-step_000005, left unfinished by a stop",
        "removed .writing-step_000020, left unfinished by a stop",
        "step_000010: going on after step 10",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["step_000010"]


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert load_latest(tmp_path) is None
    assert load_latest(tmp_path / "not there") is None


def test_a_leftover_does_not_end_up_in_the_next_save(tmp_path: Path) -> None:
    (tmp_path / ".writing-step_000001").mkdir()
    (tmp_path / ".writing-step_000001" / "stale").write_text("x")
    path = save(tmp_path, 1, _state())
    assert sorted(file.name for file in path.iterdir()) == ["model.safetensors", "state.json", "training.pt"]


def test_a_step_is_saved_once(tmp_path: Path) -> None:
    save(tmp_path, 1, _state(1.0))
    save(tmp_path, 1, _state(2.0))
    loaded = load_latest(tmp_path)
    assert loaded is not None
    assert loaded.weights["w"][0, 0] == 1.0


def test_a_write_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    save(tmp_path, 1, _state())
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, 2, TrainState({}, {}, {}, {}, extra=(full,)))
    loaded = load_latest(tmp_path)
    assert loaded is not None
    assert loaded.step == 1


def test_no_room_is_said_before_anything_is_written(tmp_path: Path) -> None:
    # 2^50 floats without memory behind them: 4 PiB.
    huge = torch.empty(1).expand(2**50)
    with pytest.raises(EngineError, match="4294967296 MiB"):
        save(tmp_path, 1, TrainState({"w": huge}, {"state": {0: [huge[:0]]}}, {}, {}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model.safetensors", "training.pt", "state.json"])
def test_a_damaged_checkpoint_is_named_not_skipped(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1, _state())
    path = save(tmp_path, 2, _state())
    content = (path / name).read_bytes()
    (path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(EngineError, match=r"step_000002 is damaged .*remove that folder"):
        load_latest(tmp_path)


def test_equal_size_but_broken_content_is_damage_too(tmp_path: Path) -> None:
    path = save(tmp_path, 1, _state())
    size = (path / "training.pt").stat().st_size
    (path / "training.pt").write_bytes(b"\0" * size)
    with pytest.raises(EngineError, match="damaged"):
        load_latest(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1, _state())
    text = (path / "state.json").read_text()
    (path / "state.json").write_text(text.replace(f'"format": {FORMAT}', '"format": 99'))
    with pytest.raises(EngineError, match="format 99"):
        load_latest(tmp_path)


def test_prune_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    # Best two of 0.5, 0.9, none, 0.9, 0.1 are steps 2 and 4; the newest is 5.
    for step, score in enumerate([0.5, 0.9, None, 0.9, 0.1], start=1):
        save(tmp_path, step, _state(score=score))
    removed = prune(tmp_path, keep_last=1, keep_best=2)
    assert [path.name for path in removed] == ["step_000001", "step_000003"]
    assert sorted(list_steps(tmp_path)) == [2, 4, 5]


def test_among_equal_scores_the_earlier_is_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, _state(score=0.5))
    prune(tmp_path, keep_last=1, keep_best=1)
    assert sorted(list_steps(tmp_path)) == [1, 3]


def test_prune_never_takes_the_only_one(tmp_path: Path) -> None:
    save(tmp_path, 1, _state())
    assert prune(tmp_path, keep_last=1) == []
    assert prune(tmp_path / "not there", keep_last=1) == []
    with pytest.raises(ConfigError, match="keep_last=0"):
        prune(tmp_path, keep_last=0)
    with pytest.raises(ConfigError, match="keep_best=-1"):
        prune(tmp_path, keep_last=1, keep_best=-1)


def test_a_kill_at_any_moment_leaves_whole_checkpoints(tmp_path: Path) -> None:
    """A child saves one checkpoint after the other and is killed at five moments of its work."""
    last = 0
    for delay in (0.0, 0.004, 0.011, 0.017, 0.029):
        child = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(tmp_path), str(last)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        assert child.stdout is not None
        said = int(child.stdout.readline())
        time.sleep(delay)
        child.kill()
        child.wait()
        said = max([said, *(int(line) for line in child.stdout if line.endswith("\n"))])
        loaded = load_latest(tmp_path)
        assert loaded is not None
        assert loaded.step >= said  # whatever save() returned from is there
        assert all(torch.equal(w, torch.full((64, 64), float(loaded.step))) for w in loaded.weights.values())
        assert not list(tmp_path.glob(".writing-*"))
        prune(tmp_path, keep_last=1)
        last = loaded.step
