"""The report of a run: what it shows, that nothing of a model's text is markup, and what it refuses."""

import json
import subprocess
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest

from grpo.metrics import MetricsWriter
from grpo.report import main
from grpo.report_charts import charts
from grpo.report_run import Mark, RunRead, column, read_run
from grpo.summaries import CompletionRow
from rewards.errors import ConfigError
from rewards.types import Part, Problem, Reason, Score, Verdict

CONFIG = "watch:\n  window: 5\n  length_ratio: 1.5\n  silent_share: 0.8\n"
HOSTILE = '<script>alert("gold")</script><img src=x onerror=alert(1)>\x1b[31m\ud800'
MANIFEST = {
    "created": "2026-01-01T00:00:00",
    "command": f"python {HOSTILE!a}",
    "seed": 3,
    "config_hash": "abc",
}


def row(reward: float | None, right: bool | None, text: str = "42") -> CompletionRow:
    orm = Score.failed(Reason.INTERNAL) if reward is None else Score.scored(reward, Reason.MODEL)
    score = Score(
        Verdict.FAILED if reward is None else Verdict.SCORED,
        reward,
        orm.reason,
        parts=(Part("orm", 1.0, orm),),
    )
    return CompletionRow(Problem("p", HOSTILE, ("42",)), text, (1, 2), False, score, 0.5, right, True)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run of 30 steps whose reward rises while gold turns down, with alarms and refits."""
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    (tmp_path / "config.yaml").write_text(CONFIG)
    writer = MetricsWriter(tmp_path)
    writer.write(0, {"eval/heldout/accuracy": 0.25})
    for step in range(1, 31):
        metrics = {
            "reward": 0.1 * step,
            "watch/gold": 0.5 - 0.003 * (step - 12) ** 2,
            "watch/kl_completion": 0.01 * step,
            "completions/mean_length": 20.0 + step,
            "groups/frac_mixed": 0.5,
            "reward/orm/mean": 0.1 * step,
            "timing_s/gen": 2.0,
            "timing_s/step": 3.0,
            "watch/auc_within": float("nan") if step == 3 else 0.7,
        }
        if step % 10 == 1:
            metrics["probe/empty/mean"] = 0.1
        if step == 20:
            metrics |= {"watch/alarm/gap": 1.0, "refit/accepted": 1.0}
            metrics |= {"refit/auc_new": 0.5, "refit/auc_new_after": 0.9}
        if step == 25:
            metrics["refit/accepted"] = 0.0
        if step == 30:
            metrics["eval/heldout/accuracy"] = 0.75
        writer.write(step, metrics)
    writer.write_completions(30, [row(3.0, False, HOSTILE), row(1.0, True), row(None, None), row(2.0, None)])
    writer.close()
    return tmp_path


def test_what_happened_is_read_back(run_folder: Path) -> None:
    run = read_run(run_folder)
    assert [(mark.step, mark.kind) for mark in run.marks] == [
        (20, "gap"),
        (20, "refit"),
        (25, "refit refused"),
    ]
    assert run.marks[0].text.startswith("the reward rose from")
    assert run.marks[1].text == "AUC on this round 0.500 -> 0.900"
    assert run.summary is None
    assert len(run.samples) == 4
    steps, values = column(run.lines, "watch/auc_within")
    assert (len(steps), 3.0 in steps, set(values)) == (29, False, {0.7})


def curve(run: RunRead, title: str, name: str) -> tuple[list[float], list[float]]:
    figure = dict(charts(run))[title]
    trace = next(trace for trace in figure.data if trace.name == name)
    return list(trace.x), list(trace.y)


def test_the_charts_show_the_numbers(run_folder: Path) -> None:
    run = read_run(run_folder)
    assert curve(run, "gold and proxy by step", "held-out accuracy") == ([0.0, 30.0], [0.25, 0.75])
    steps, means = curve(run, "gold and proxy by step", "reward (proxy)")
    assert steps == [float(step) for step in range(1, 31)]
    assert means[-1] == pytest.approx(0.1 * 25.5)  # of steps 21 to 30
    distances, _ = curve(run, "gold and proxy by distance from the start policy", "right (gold)")
    assert distances[0] == pytest.approx(0.1)  # the root of 0.01
    places, _ = curve(run, "gold and proxy by distance from the start policy", "refit")
    assert len(places) == 1
    assert curve(run, "parts of the reward", "orm")[0] == steps
    assert {trace.name for trace in dict(charts(run))["seconds by phase"].data if trace.name} == {"gen"}
    assert curve(run, "what made-up completions would earn", "empty") == ([1.0, 11.0, 21.0], [0.1] * 3)


def test_a_run_without_learned_reward_has_fewer_charts(run_folder: Path) -> None:
    run = read_run(run_folder)
    bare = RunRead(
        run.path, run.manifest, "", ({"step": 1.0, "reward": 0.5},), (Mark(1, "gap", "cheated"),), None, ()
    )
    assert [title for title, _ in charts(bare)] == ["gold and proxy by step"]


class Page(HTMLParser):
    """Words and tags of a page, the library's own script left out."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [value for name, value in attrs if name in ("src", "href", "onerror")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_is_whole_and_shows_text_as_text(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run_folder)]) == 0
    page = run_folder / "report.html"
    assert capsys.readouterr().out.strip() == str(page)
    content = page.read_text(encoding="utf-8")
    parsed = Page()
    parsed.feed(content)
    assert not {"img", "link", "iframe"} & set(parsed.tags)
    words = "\n".join(word for word in parsed.words if len(word) < 5000)
    assert '<script>alert("gold")</script>' in words
    assert "\x1b" not in content
    for expected in (
        "not finished, at step 30",
        "refit refused",
        "wrong, and paid most",
        "heldout/accuracy",
        "0.750",
    ):
        assert expected in words
    assert "plotly" in content.lower()


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "expected a run's folder" in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    with pytest.raises(ConfigError, match="no step yet"):
        read_run(tmp_path)


def test_without_plotly_the_remedy_is_told(run_folder: Path, program_env: Mapping[str, str]) -> None:
    code = (
        "import sys; sys.modules['plotly'] = None\n"
        f"from grpo.report import main; sys.exit(main([{str(run_folder)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=dict(program_env), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'plumbline[report]'" in done.stderr
    assert done.stderr.count("\n") == 1
