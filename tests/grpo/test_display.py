"""The screen: one line a step, tables with the numbers given, model text that stays text."""

import io

import pytest
from rich.console import Console

from grpo.display import (
    StepDisplay,
    in_time,
    print_headline,
    print_health,
    print_plan,
    print_samples,
    step_line,
)
from grpo.summaries import CompletionRow
from rewards.types import Part, Problem, Reason, Score, Verdict

METRICS = {
    "reward": 0.8125,
    "reward_std": 0.25,
    "reward/accuracy/mean": 0.75,
    "kl": 0.01234,
    "loss": 0.02,
    "completions/mean_length": 41.25,
    "completions/clipped_ratio": 0.03,
    "perf/tokens_per_s": 12345.6,
    "timing_s/step": 2.0,
}
HOSTILE = "[red]x[/red] [/] \x1b[31mred\x1b[0m \x00 \u202eabc \ud800 [link=file:///etc]y[/link] 終"


def _console(*, terminal: bool = False, width: int = 200) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)


def _text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_step_is_one_plain_line() -> None:
    console = _console(width=40)  # narrower than the line: without a terminal nothing is wrapped
    with StepDisplay(60, console) as display:
        display.phase("step 12: rollout")
        display.step(12, METRICS)
    assert _text(console) == (
        "step 12/60  reward 0.812 ± 0.250  accuracy 0.750  kl 0.0123  length 41.2  clipped 3%  "
        "tokens/s 12,346  eta 1m36s\n"
    )


def test_what_is_missing_is_left_out() -> None:
    assert step_line(1, 10, {}) == "step  1/10"
    assert step_line(10, 10, {"reward": 1.0}, eta=0.0) == "step 10/10  reward 1.000"


def test_the_time_left_follows_the_last_twenty_steps() -> None:
    console = _console()
    display = StepDisplay(100, console)
    for step in range(1, 41):
        display.step(step, {"timing_s/step": 100.0 if step <= 20 else 1.0})
    assert _text(console).splitlines()[-1] == "step  40/100  eta 1m00s"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.4, "0s"), (59.4, "59s"), (59.6, "1m00s"), (3599.6, "1h00m"), (9e4, "25h00m")],
)
def test_durations(seconds: float, expected: str) -> None:
    assert in_time(seconds) == expected


def test_a_phase_is_shown_on_a_terminal_only() -> None:
    plain, terminal = _console(), _console(terminal=True)
    for console in (plain, terminal):
        with StepDisplay(3, console) as display:
            display.phase("step 1: update")
            display.phase("step 1: rollout [bold]5/8")
            display.step(1, METRICS)
    assert "rollout" not in _text(plain)
    assert "rollout [bold]5/8" in _text(terminal)
    assert "step 1/3" in _text(terminal)


def test_notes_come_once_and_again_at_the_end() -> None:
    console = _console()
    display = StepDisplay(3, console)
    for step in (1, 2):
        display.step(step, METRICS | {"loss": 0.0})
    assert _text(console).count("a loss near 0 is normal") == 1
    print_health(console, display.health)
    assert _text(console).count("a loss near 0 is normal") == 2
    assert "[2 steps]" in _text(console)


def test_headline_shows_before_after_change_and_interval() -> None:
    console = _console()
    before = {"accuracy": 0.5, "accuracy_low": 0.4, "accuracy_high": 0.6, "greedy": 0.625, "length": 120.0}
    after = {"accuracy": 0.75, "accuracy_low": 0.7, "accuracy_high": 0.8, "pass@4": 0.875, "length": 100.5}
    named = ({f"eval/heldout/{name}": x for name, x in values.items()} for values in (before, after))
    print_headline(console, *({**values, "timing_s/eval": 3.0} for values in named))
    cells = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:5]]
        for line in _text(console).splitlines()
        if line.startswith("│")
    }
    assert cells == {
        "heldout/accuracy": ["0.500 (0.400 to 0.600)", "0.750 (0.700 to 0.800)", "+0.250"],
        "heldout/greedy": ["0.625", "-", "-"],
        "heldout/length": ["120.0", "100.5", "-19.500"],
        "heldout/pass@4": ["-", "0.875", "-"],
    }


def test_plan_shows_every_row() -> None:
    console = _console()
    print_plan(console, [("completions", "256", "32 prompts x 8"), ("memory", "1.5 GB", HOSTILE)])
    assert "completions" in _text(console)
    assert "32 prompts x 8" in _text(console)
    assert "1.5 GB" in _text(console)
    assert "\x1b" not in _text(console)


def _row(text: str) -> CompletionRow:
    accuracy = Score.scored(0.0, Reason.MISMATCH, notes={"answer": "[bold]5[/bold]"})
    layout = Score.failed(Reason.WORKER_DIED)
    score = Score(
        Verdict.FAILED,
        None,
        Reason.PART_FAILED,
        parts=(Part("accuracy", 1.0, accuracy), Part("format", 0.2, layout)),
    )
    return CompletionRow(Problem("p1", HOSTILE, ("4", "2")), text, (1,), True, score, -0.5)


def test_samples_show_why() -> None:
    console = _console()
    print_samples(console, [], title="nothing")
    assert _text(console) == ""
    print_samples(console, [_row("it is 5")], title="step [3]")
    text = _text(console)
    for piece in (
        "step [3]",
        "it is 5 […cut off]",
        "4 and 2",
        "accuracy 0 mismatch",
        "format failed worker_died",
        "[bold]5[/bold]",
        "-0.500",
    ):
        assert piece in text, piece


@pytest.mark.parametrize("terminal", [False, True])
def test_model_text_is_shown_and_never_interpreted(terminal: bool) -> None:
    console = _console(terminal=terminal, width=400)
    print_samples(console, [_row(HOSTILE)])
    text = _text(console)
    assert (
        "[red]x[/red] [/] \\x1b[31mred\\x1b[0m \\x00 \\u202eabc \\ud800 [link=file:///etc]y[/link] 終" in text
    )
    assert not {"\x1b", "\x00", "\u202e", "\ud800"} & set(text)


def test_a_long_completion_is_shown_by_its_end() -> None:
    console = _console(width=1000)
    print_samples(console, [_row("b" * 100_000 + "the end")])
    assert "…" + "b" * 393 + "the end […cut off]" in _text(console)
