"""Everything the README shows works: its commands, its Python, its table of metrics, its links.

`python tests/test_readme.py` writes the table of metrics into the README.
"""

import doctest
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tiny_reward_models import tiny_folder
from training_runs import ROUNDS, SECONDS, TINY

from grpo.names import METRICS

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
MARKS = re.compile(r"(<!-- metrics: .* -->\n)(.*?)(<!-- /metrics -->\n)", re.DOTALL)

SMALL = (
    " device=cpu steps=1 optim.warmup_steps=0 model.hidden_size=32 model.layers=1 coldstart.steps=2"
    " data.train_size=40 data.eval_size=4 eval.samples=1"
    " rollout.prompts_per_step=2 rollout.group_size=2 rollout.max_completion_tokens=8"
)
HUB_SMALL = (
    " device=cpu steps=1 optim.warmup_steps=0 dry_run=true data.eval_size=2 data.max_prompt_tokens=2000"
    " rollout.prompts_per_step=4"
)
ITERATED = f" {' '.join((*TINY, *ROUNDS))} steps=2"
"""A reward model can be fitted only to a policy that is right now and then."""


@dataclass(frozen=True)
class Shrunk:
    """How a command of the README is made small: what begins with `start` gets `more` at its end.

    replace: text of the command -> what stands there in the test, where a size is not enough.
    """

    start: str
    more: str = ""
    replace: Mapping[str, str] | None = None


STAND_INS = {
    "Qwen/Qwen2.5-0.5B-Instruct": "tiny_hub_model",
    "data=gsm8k": "data=gsm8k data.path=gsm8k_rows.jsonl",
    "data=math": "data=math data.path=math_rows.jsonl",
    "problems.jsonl": "gsm8k.jsonl",  # forty problems instead of the one that is shown
}
SHRUNK = (
    # A test does not start the whole of what it is part of: make shows what it would do.
    Shrunk("make", " --dry-run"),
    # No network here: a tiny model saved on the spot stands for the hub's, local rows for the hub's sets, and
    # the run stops before it trains (tests/test_real_model.py trains a real one).
    Shrunk("python -m grpo.train model=hub", HUB_SMALL, STAND_INS),
    # A tiny random model in the layout of the public one.
    Shrunk("python -m rewards.score", replace={"Qwen/Qwen2.5-Math-PRM-7B": "tiny_prm"}),
    Shrunk("python -m data_prep.run dataset=gsm8k ", " source=gsm8k_rows.jsonl"),
    Shrunk(
        "python -m data_prep.run dataset=step_labels",
        " limit=1 step_labels.max_tokens=8",
        STAND_INS | {"problems.jsonl": "few_problems.jsonl"},
    ),
    Shrunk("python -m rewards.fit", " device=cpu", STAND_INS),
    # No accelerator is assumed; without one accelerate starts one process, torch's launcher two.
    Shrunk("accelerate launch", SMALL, {"launch": "launch --cpu --num_machines 1 --main_process_port 0"}),
    Shrunk("torchrun", SMALL),
    Shrunk("python -m grpo.train reward=orm iterate", ITERATED),
    Shrunk("python -m grpo.train reward=verifiable+prm", ITERATED),
    Shrunk("python -m grpo.train", SMALL),
    Shrunk("python -m grpo.report", replace={"RUN": '"$(ls -d outputs/run-* | head -n 1)"'}),
    # The first run that the commands before have left.
    Shrunk(
        "python -m grpo.evaluate",
        " device=cpu data.eval_size=4 data.train_size=40 sampling.max_completion_tokens=8 sampling.samples=2",
        {"RUN": '"$(dirname "$(ls -d outputs/run-*/model | head -n 1)")"'},
    ),
)
"""The first that fits; a command that is not here runs as it stands."""


def blocks(language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


COMMANDS = [
    line for block in blocks("sh") for line in block.splitlines() if line and not line.startswith("#")
]


def shrink(command: str) -> str:
    rule = next((rule for rule in SHRUNK if command.startswith(rule.start)), Shrunk(""))
    for text, stand_in in (rule.replace or {}).items():
        command = command.replace(text, stand_in)
    return command + rule.more


class Reader:
    """Somebody who follows the README from top to bottom in one folder."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
        self.env = {**env, "PATH": path}
        python = blocks("python")
        (folder / "brief.py").write_text(next(block for block in python if "class Brief" in block))
        (folder / "my_conf" / "reward").mkdir(parents=True)
        (folder / "my_conf" / "reward" / "brief.yaml").write_text(blocks("yaml")[0])
        gsm8k = [{"question": f"{n} and 1?", "answer": f"One more.\n#### {n + 1}"} for n in range(40)]
        math = [{"problem": f"{n}+1?", "solution": rf"It is \boxed{{{n + 1}}}."} for n in range(40)]
        solved = [
            {
                "question": f"{n} and 1?",
                "ground_truth": str(n + 1),
                "small": {"is_correct": False, "solution": f"It is {n}."},
                "large": {"is_correct": True, "solution": f"One more: {n + 1}."},
            }
            for n in range(40)
        ]
        files = {
            "gsm8k_rows": gsm8k,
            "math_rows": math,
            "example_model_solutions": solved,
            "few_problems": [{"id": "q1", "prompt": "6*7=", "gold": "42"}],
        }
        for name, rows in files.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def does(self, command: str) -> subprocess.CompletedProcess[str]:
        place = ROOT if command.startswith("make") else self.folder
        return subprocess.run(
            ["bash", "-c", shrink(command)],
            cwd=place,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, program_env: Mapping[str, str]) -> Reader:
    reader = Reader(tmp_path_factory.mktemp("readme"), program_env)
    save_tiny_hub_model(reader.folder / "tiny_hub_model")
    tiny_folder("qwen2.5-math-prm", reader.folder / "tiny_prm")
    return reader


def save_tiny_hub_model(folder: Path) -> None:
    """A folder like one of the hub's."""
    from fakes import TOKENIZER  # torch, only where a model is made

    from grpo.tiny import TinyShape, tiny_model

    tiny_model(TOKENIZER, TinyShape(32, 1, 2), seed=0).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)


def test_every_command_works(reader: Reader) -> None:
    assert len(COMMANDS) > 15
    for command in COMMANDS:
        done = reader.does(command)
        assert done.returncode == 0, f"{shrink(command)}\n{done.stdout}{done.stderr}"
        if command.startswith("make"):
            wanted = {"make train": "-m grpo.train reward=verifiable+format", "make test": "-m pytest"}
            assert wanted[command] in done.stdout
    shown = json.loads(blocks("json")[0])
    assert json.loads((reader.folder / "scores.jsonl").read_text()) == shown
    brief = json.loads((reader.folder / "brief_scores.jsonl").read_text())
    # 31 of 60 characters, at weight 0.1, beside a right answer
    assert brief["value"] == pytest.approx(1 + 0.1 * (1 - 31 / 60))
    (other,) = [json.loads(line) for line in (reader.folder / "other_scores.jsonl").read_text().splitlines()]
    assert other["value"] == 1


def test_a_reward_takes_five_lines_of_yaml() -> None:
    assert len(blocks("yaml")[0].splitlines()) == 5
    assert list(yaml.safe_load(blocks("yaml")[0])["components"]) == ["brief"]


def test_the_python_examples_hold() -> None:
    result = doctest.testfile(str(README), module_relative=False)
    assert result.attempted > 5
    assert result.failed == 0


def test_links_point_at_files() -> None:
    for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#]+)\)", text)
        assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def metrics_table() -> str:
    lines = ["| name | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in METRICS.items()]
    return "\n".join(lines) + "\n"


def with_metrics_table(readme: str) -> str:
    return MARKS.sub(lambda match: f"{match[1]}\n{metrics_table()}\n{match[3]}", readme)


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    readme = README.read_text(encoding="utf-8")
    assert MARKS.search(readme)
    assert with_metrics_table(readme) == readme, "run python tests/test_readme.py"


if __name__ == "__main__":
    README.write_text(with_metrics_table(README.read_text(encoding="utf-8")), encoding="utf-8")
