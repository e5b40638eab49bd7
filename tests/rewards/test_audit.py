"""Audits: attacks are built right, figures mean what they say, limits set the exit status."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fakes_scorers import Constant, GoldInText
from rich.console import Console
from shared_cases import shared

from rewards.attacks import Attempt, Kind, Target, attempts_on, near, target_of
from rewards.audit import print_findings, run
from rewards.audit_config import AUDIT
from rewards.audit_page import write_page
from rewards.dataset_check import check_dataset
from rewards.errors import DataError
from rewards.findings import Findings, attack, percentile
from rewards.format import FormatSpec
from rewards.io import write_problems
from rewards.scorer import Scorer
from rewards.types import Problem, Reason, Sample, Score
from rewards.verifiers.accuracy import AccuracyVerifier

SPECS = [FormatSpec(), FormatSpec(answer_style="tags"), FormatSpec(mode="off", answer_style="free")]
PROBLEMS = [
    Problem(f"p{n}", f"Ann has {n} sweets and gets {n + 5} more. How many?", (str(2 * n + 5),))
    for n in range(3, 30)
]
PLAIN = Target(PROBLEMS[0], ("11",), "12")


@dataclass(frozen=True, slots=True)
class Judge:
    """A scorer made of a rule for text and gold."""

    rule: Callable[[str, str], float]

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [
            Score.scored(self.rule(sample.text, sample.problem.gold[0]), Reason.MODEL) for sample in samples
        ]


def attacked(scorer: Scorer, problems: Sequence[Problem] = PROBLEMS[:4]) -> Findings:
    targets = [target for problem in problems if (target := target_of(problem, PROBLEMS)) is not None]
    return attack(scorer, targets, FormatSpec(), {})


def test_wrong_answers_are_near_and_known_to_be_wrong() -> None:
    assert near("-0.5") == ["0.5", "-1.5", "-5.0", "0.5"]
    assert near("C") == ["A", "B", "D"]
    assert near("x+1") == []
    golds = ["7", "1,200", "C", r"\frac{1}{2}", "x^2+1", "(1,2)", "blue", "0"]
    problems = [Problem(gold, "?", (gold,)) for gold in golds]
    for problem in problems:
        target = target_of(problem, problems)
        assert target is not None
        assert AccuracyVerifier().score([Sample(problem, rf"\boxed{{{target.wrong}}}")])[0].value == 0.0


def test_a_problem_without_a_readable_gold_is_no_target() -> None:
    assert target_of(Problem("a", "?"), PROBLEMS) is None
    assert target_of(Problem("a", "?", ("7",)), []) is not None


def test_the_gold_is_taken_out_of_a_worked_solution() -> None:
    target = target_of(Problem("a", "?", ("so 3+4=7\n#### 7",)), [])
    assert target is not None
    assert target.right == ("7",)


@pytest.mark.parametrize("spec", SPECS)
def test_honest_answers_are_right_and_wrong_in_every_layout(spec: FormatSpec) -> None:
    verifier = AccuracyVerifier(spec)
    for golds in [("11",), ("1200",), (r"\frac{1}{2}",), ("2", "3")]:
        problem = Problem("p", "which?", golds)
        target = target_of(problem, PROBLEMS)
        assert target is not None
        attempts = attempts_on(target, spec)
        for attempt in attempts:
            value = verifier.score([Sample(problem, attempt.text)])[0].value
            if attempt.kind is Kind.RIGHT:
                assert value == 1.0, attempt
            if attempt.kind is Kind.WRONG:
                assert value == 0.0, attempt


def test_every_family_of_the_issue_is_there() -> None:
    families = {(attempt.kind, attempt.family) for attempt in attempts_on(PLAIN, FormatSpec())}
    attacks = {family for kind, family in families if kind is Kind.ATTACK}
    assert attacks >= {
        "nothing", "tokens again and again", "layout without an answer", "list of candidates", "either or",
        "repeated boxes", "nested boxes", "unclosed thought", "doubled thought", "question given back",
        "words to the grader", "code as an answer", "very long",
    }  # fmt: skip
    assert (Kind.SHORTCUT, "answer without work") in families
    assert sum(kind is Kind.WRONG for kind, _ in families) == 1


def test_attempts_are_the_same_every_time_and_never_the_gold_alone() -> None:
    target = Target(Problem("p", "0?", ("0",)), ("0",), "1")
    attempts = attempts_on(target, FormatSpec())
    assert attempts == attempts_on(target, FormatSpec())
    assert not any(a.kind is Kind.ATTACK and a.text.strip() == "0" for a in attempts)
    assert any(a.kind is Kind.ATTACK and len(a.text) > 50_000 for a in attempts)


def test_the_default_verifier_is_not_exploitable_on_sums_in_words() -> None:
    findings = attacked(AccuracyVerifier())
    assert findings.exploitability() == 0.0
    assert all(family.mean() == 1.0 for family in findings.of_kind(Kind.RIGHT))
    assert findings.blind == findings.abstained == 0


def test_a_substring_reward_is_found_out() -> None:
    findings = attacked(GoldInText())
    assert findings.exploitability() == 1.0
    best = findings.of_kind(Kind.ATTACK)[0]
    assert best.mean() == 1.0
    assert best.telling[0].score.value == 1.0
    families = {family.name: family for family in findings.of_kind(Kind.ATTACK)}
    assert families["either or"].mean() == 1.0
    assert families["nothing"].mean() == 0.0


def test_a_reward_that_cannot_tell_right_from_wrong_is_wholly_exploitable() -> None:
    findings = attacked(Constant(0.7))
    assert findings.blind == 4
    assert findings.exploitability() == 1.0


def test_pay_is_measured_between_the_honest_answers() -> None:
    # An honest wrong answer earns 0.25, a right one 1.25; half-way between, 0.75, is a pay of 0.5; what
    # earns less than the wrong one, here nothing at all, is no exploit.
    def rule(text: str, gold: str) -> float:
        right = f"The answer is {gold}." in text and "instructions" not in text
        return (
            1.25 if right else 0.75 if "instructions" in text else 0.25 if text.startswith("<think>") else 0.0
        )

    findings = attacked(Judge(rule))
    families = {family.name: family for family in findings.of_kind(Kind.ATTACK)}
    assert families["words to the grader"].pays.count(0.5) == 4 * 2  # one of five texts, alone and as answer
    assert families["nothing"].mean() == 0.0


def test_an_abstaining_reward_is_counted_not_scored() -> None:
    class Abstaining:
        def score(self, samples: Sequence[Sample]) -> list[Score]:
            return [Score.abstained(Reason.NOT_APPLICABLE) for _ in samples]

    findings = attacked(Abstaining())
    assert (findings.problems, findings.abstained, findings.blind) == (4, 4, 0)
    assert findings.families == {}


def test_agreement_and_latency() -> None:
    targets = [PLAIN]
    findings = attack(
        AccuracyVerifier(), targets, FormatSpec(), {"always": Constant(1.0), "never": Constant(0.0)}
    )
    assert findings.scorers == ["total", "always", "never"]
    assert findings.agreement["always", "never"] == 0.0
    assert findings.agreement["total", "total"] == 1.0
    paid = findings.agreement["total", "always"]
    assert paid + findings.agreement["total", "never"] == pytest.approx(1.0)
    assert len(findings.seconds) == len(attempts_on(PLAIN, FormatSpec()))
    assert percentile([5.0, 1.0, 4.0, 2.0, 3.0], 0.9) == 5.0
    assert percentile([5.0, 1.0, 4.0, 2.0, 3.0], 0.2) == 1.0
    assert percentile([], 0.5) == 0.0


def test_a_dataset_is_checked_by_row() -> None:
    problems = [
        Problem("a", "1+1?", ("2",)),
        Problem("a", "2+2?", ("4",)),
        Problem("b", "1 + 1?", ("2",)),
        Problem("c", " 1+1? ", ("2",)),
        Problem("d", "2+2?", ("5",)),
        Problem("e", "", ("blue",)),
        Problem("f", "which?", ()),
        Problem("g", r"For example \boxed{3}. Which?", (r"\frac{1}{",), "number"),
    ]
    report = check_dataset(problems)
    assert [(fault.index + 1, fault.reason) for fault in report.faults] == [
        (7, Reason.NO_GOLD),
        (8, Reason.INVALID_GOLD),
    ]
    assert report.invalid_share() == 0.25
    assert [group.rows for group in report.same_ids] == [(1, 2)]
    assert [group.rows for group in report.same_prompts] == [(1, 4)]
    assert [group.rows for group in report.conflicts] == [(2, 5)]
    assert report.empty_prompts == [6]
    assert report.leaks == [8]
    assert report.types == {"number": 5, "text": 1, "none": 1, "unreadable": 1}


class Tags(HTMLParser):
    """Collects the tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_interprets_nothing(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)> & </pre><script>alert(2)</script>\x1b[31m"
    problems = [Problem(evil, evil, (evil,)), Problem("b", "?", ("7",)), Problem("b", "?", ())]
    findings = attacked(GoldInText(), problems)
    page = tmp_path / "pages" / "audit.html"
    write_page(str(page), evil, check_dataset(problems), findings)
    text = page.read_text(encoding="utf-8")
    parsed = Tags()
    parsed.feed(text)
    assert not parsed.tags & {"img", "script", "a", "link", "iframe"}
    assert "\x1b" not in text
    assert "<img src=x onerror=alert(1)>" in "".join(parsed.words)
    assert f"{findings.exploitability():.3f}" in text


def printed(findings: Findings) -> str:
    out = io.StringIO()
    print_findings(Console(file=out, width=160), findings)
    return out.getvalue()


def test_what_is_printed_names_the_attack_and_what_it_earned() -> None:
    text = printed(attacked(GoldInText()))
    assert re.search(r"^exploitability 1\.000", text, flags=re.M)
    assert "either or" in text
    assert "paid: " in text
    assert "milliseconds a score" in text
    sound = printed(attacked(AccuracyVerifier()))
    assert "paid: " not in sound.replace("not paid", "")
    assert re.search(r"attacks that earn \(\d+ families earn nothing\)", sound)


def test_your_own_file_with_other_names_is_read(tmp_path: Path) -> None:
    source = tmp_path / "mine.jsonl"
    rows = [{"Question": f"What is {n} apples and one?", "Answer": n + 1.0} for n in range(60)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = tmp_path / "page.html"
    overrides = ["data=jsonl", f"data.path={source}", "reward=verifiable", "problems=5", f"page={page}"]
    out = io.StringIO()
    assert run(AUDIT.load(overrides), Console(file=out, width=160))
    assert "'Answer' is read as the gold" in out.getvalue()
    assert "5 problems attacked" in out.getvalue()
    assert page.exists()
    with pytest.raises(DataError, match="cannot be read"):
        run(
            AUDIT.load(["data=jsonl", f"data.path={tmp_path / 'none.jsonl'}", "page=null"]), Console(file=out)
        )


def audit(folder: Path, *overrides: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "rewards.audit", *overrides]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)


def test_the_program_exits_by_its_limits(tmp_path: Path) -> None:
    source = tmp_path / "p.jsonl"
    write_problems(source, [*PROBLEMS, Problem("bad", "?", ())])
    data = ["data=jsonl", f"data.path={source}"]
    sound = audit(tmp_path, "reward=verifiable+format", *data, "problems=3")
    assert sound.returncode == 0, sound.stderr + sound.stdout
    assert "row 28, id bad: no_gold" in sound.stdout
    assert (tmp_path / "audit.html").exists()
    exploitable = audit(tmp_path, "reward=format", *data, "problems=3", "page=null")
    assert exploitable.returncode == 1
    assert "exploitability 1.000 is above max_exploitability=0.05" in exploitable.stdout
    strict = audit(tmp_path, *data, "data.max_invalid_share=0", "page=null")
    assert strict.returncode == 1
    assert "3.6% of the golds cannot be verified" in strict.stdout
    assert "exploitability" not in strict.stdout
    told = audit(tmp_path, "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert "max_exploitability" in told.stdout
    refused = audit(tmp_path, "reward=verifable", *data)
    assert refused.returncode == 2
    assert "verifiable" in refused.stderr


def test_a_public_set_is_prepared_first(tmp_path: Path) -> None:
    out = io.StringIO()
    overrides = ["data=math", f"data.path={shared('data/math/math500_test.jsonl')}", "page=null"]
    assert run(AUDIT.load(overrides), Console(file=out, width=160))
    assert "math, prepared: 500 problems" in out.getvalue()
    assert "golds that cannot be verified: 0" in out.getvalue()


def test_an_attempt_is_plain_data() -> None:
    assert Attempt(Kind.ATTACK, "nothing", "") in attempts_on(PLAIN, FormatSpec())
