"""The equivalence engine on its own table of cases, and its contract: golds, settings, reasons, safety."""

import ast
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from rewards.errors import ConfigError
from rewards.types import Reason
from rewards.verifiers.equivalence import (
    AlgebraTask,
    Decision,
    EquivalenceSettings,
    Gold,
    decide,
    prepare_gold,
    solve,
)

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rewards" / "verifiers" / "equivalence"
CASES = [
    json.loads(line)
    for line in (ROOT / "tests" / "cases" / "equivalence.jsonl").read_text("utf-8").splitlines()
]
DEFAULT = EquivalenceSettings()


def judged(gold: str | tuple[str, ...], answer: str, settings: EquivalenceSettings = DEFAULT) -> Decision:
    """The final decision, algebra included, run here instead of in a worker."""
    golds = (gold,) if isinstance(gold, str) else gold
    found = decide(prepared(golds, settings=settings), answer, settings)
    return solve(found) if isinstance(found, AlgebraTask) else found


def prepared(
    gold: tuple[str, ...], answer_type: str = "auto", settings: EquivalenceSettings = DEFAULT
) -> Gold:
    found = prepare_gold(gold, answer_type, settings)
    assert isinstance(found, Gold), found
    return found


def test_the_table_is_wide() -> None:
    assert len(CASES) >= 400
    assert len({case["id"] for case in CASES}) == len(CASES)
    assert len({case["family"] for case in CASES}) >= 25
    assert 0.3 < sum(case["equal"] for case in CASES) / len(CASES) < 0.7


def test_every_convention_has_cases_of_its_own() -> None:
    used = {name for case in CASES for name in case.get("settings", {})}
    assert used == {field.name for field in fields(EquivalenceSettings)}


@pytest.mark.parametrize("case", CASES, ids=[f"{case['id']}-{case['family']}" for case in CASES])
def test_table(case: dict[str, Any]) -> None:
    settings = EquivalenceSettings(**case.get("settings", {}))
    gold = prepared((case["gold"],), case.get("type", "auto"), settings)
    found = decide(gold, case["answer"], settings)
    decision = solve(found) if isinstance(found, AlgebraTask) else found
    assert decision.equal is case["equal"], decision


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_every_gold_of_the_table_verifies_against_itself(case: dict[str, Any]) -> None:
    settings = EquivalenceSettings(**case.get("settings", {}))
    gold = prepared((case["gold"],), case.get("type", "auto"), settings)
    assert decide(gold, case["gold"], settings) == Decision(True, Reason.MATCH_STRING)


@pytest.mark.parametrize(
    ("gold", "answer_type"),
    [
        ("42", "number"),
        ("-\\frac{3}{7}", "number"),
        ("12 cm", "number"),
        ("x^2+1", "expression"),
        ("y = 3x", "equation"),
        ("x^2+y^2 = 4", "equation"),
        ("x + y > 2", "equation"),
        ("x > 2", "interval"),
        ("[0, 3)", "interval"),
        ("(0, 3)", "tuple"),
        ("\\{1, 2\\}", "set"),
        ("1, 2", "set"),
        ("\\pm 3", "set"),
        ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "matrix"),
        ("B", "choice"),
        ("(B) twelve", "choice"),
        ("\\text{north}", "text"),
        ("the north wind", "text"),
    ],
)
def test_auto_finds_the_type_of_the_gold(gold: str, answer_type: str) -> None:
    assert prepared((gold,)).answer_type == answer_type


@pytest.mark.parametrize(
    ("gold", "same"),
    [
        ("so \\boxed{17}.", "17"),
        ("\\boxed{3} and \\boxed{5}", "5, 3"),
        ("first \\boxed{3}, but after a long check of every single case that remains: \\boxed{5}", "5"),
        ("2 + 3 = 5\n#### 5", "5"),
        ("<answer>5</answer>", "5"),
        ("The answer is $\\frac{1}{4}$.", "0.25"),
        ("\\boxed{20}\\% of them", "0.2"),
    ],
)
def test_the_answer_is_taken_out_of_a_gold(gold: str, same: str) -> None:
    assert judged(gold, same).equal


@pytest.mark.parametrize("gold", [(), ("",), ("  ", "\n")])
def test_no_gold(gold: tuple[str, ...]) -> None:
    assert prepare_gold(gold, "auto", DEFAULT) is Reason.NO_GOLD


@pytest.mark.parametrize(
    ("gold", "answer_type"),
    [
        (("3", ""), "auto"),
        (("...",), "auto"),
        (("\\frac{",), "auto"),
        (("{",), "auto"),
        (("\\left(",), "auto"),
        (("((3)",), "auto"),
        (("1/0",), "auto"),
        (("\\text{}",), "auto"),
        (("x" * 5000,), "auto"),
        (("maybe seven",), "number"),
        (("x+1",), "number"),
        (("twelve",), "choice"),
    ],
)
def test_invalid_gold(gold: tuple[str, ...], answer_type: str) -> None:
    assert prepare_gold(gold, answer_type, DEFAULT) is Reason.INVALID_GOLD


def test_several_golds_must_all_be_given() -> None:
    assert judged(("3", "5"), "5, 3").equal
    assert judged(("3", "5"), "x = 3 \\text{ or } x = 5").equal
    assert not judged(("3", "5"), "3").equal
    assert not judged(("3", "5"), "3, 5, 7").equal
    assert judged(("red", "blue"), "Red, blue").equal
    assert not judged(("red", "blue"), "red").equal


@pytest.mark.parametrize(
    ("gold", "answer", "reason"),
    [
        ("x+1", "x + 1", Reason.MATCH_STRING),
        ("\\frac12", "0.5", Reason.MATCH_NUMERIC),
        ("x(x+1)", "x^2+x", Reason.MATCH_SYMBOLIC),
        ("(1, x)", "(2/2, x)", Reason.MATCH_STRUCTURE),
        ("\\cos 2x", "2\\cos^2 x - 1", Reason.MATCH_SYMBOLIC),
        ("7", "8", Reason.MISMATCH),
        ("7", "", Reason.NO_ANSWER),
        ("7", "seven of them, I think", Reason.UNPARSABLE),
        ("7", "7+" * 3000, Reason.TOO_LARGE),
    ],
)
def test_reasons(gold: str, answer: str, reason: Reason) -> None:
    assert judged(gold, answer).reason is reason


def test_what_algebra_must_decide_is_handed_on_as_a_picklable_task() -> None:
    found = decide(prepared(("\\sin 2x",)), "2 \\sin x \\cos x", DEFAULT)
    assert isinstance(found, AlgebraTask)
    assert solve(pickle.loads(pickle.dumps(found))) == Decision(True, Reason.MATCH_SYMBOLIC)


def test_ordinary_answers_need_no_worker() -> None:
    pairs = [
        ("12", "3\\cdot 4"),
        ("\\sqrt{50}", "5\\sqrt2"),
        ("x^2-1", "(x-1)(x+1)"),
        ("[0,1]", "0\\le x\\le1"),
    ]
    assert all(isinstance(decide(prepared((gold,)), answer, DEFAULT), Decision) for gold, answer in pairs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_digits": 0}, "min_digits=0"),
        ({"rel_tol": 0.5}, "rel_tol=0.5"),
        ({"rel_tol": -1e-9}, "rel_tol"),
        ({"percent": "both"}, "percent='both'"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EquivalenceSettings(**settings)


def test_settings_and_golds_are_hashable_and_picklable() -> None:
    gold = prepared(("x^2+1",))
    assert pickle.loads(pickle.dumps(gold)) == gold
    assert hash(gold) == hash(prepared(("x^2+1",)))
    assert hash(DEFAULT) == hash(EquivalenceSettings())


def test_deciding_loads_no_algebra() -> None:
    code = (
        "import sys; from rewards.verifiers.equivalence import *; s = EquivalenceSettings();"
        "[decide(prepare_gold((g,), 'auto', s), a, s) for g, a in [('1/2', '0.5'), ('\\\\sin 2x', 'x')]];"
        "print([m for m in ('sympy', 'mpmath', 'math_verify', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_no_string_can_reach_an_evaluator() -> None:
    """No module calls eval, exec, compile, sympify, parse_expr or N; none imports a LaTeX-to-sympy reader.

    sympy's own constructors turn strings into code through sympify, so no string may be among their
    arguments: the one place that builds from text is Symbol, which only names.
    """
    forbidden = {"eval", "exec", "sympify", "parse_expr", "N", "S", "parse_latex", "lambdify", "__import__"}
    for path in PACKAGE.glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                assert name not in forbidden, f"{path.name}:{node.lineno} calls {name}"
                library = (
                    isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "sympy"
                )
                if library and name != "Symbol":
                    texts = [arg for arg in node.args if isinstance(arg, ast.Constant | ast.JoinedStr)]
                    assert not any(isinstance(getattr(arg, "value", ""), str) for arg in texts)
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
                assert not any(n.startswith(("math_verify", "latex2sympy", "sympy.pars")) for n in names)


@pytest.mark.parametrize(
    "payload",
    [
        "__import__('pathlib').Path('{path}').touch()",
        "\\text{{__import__('pathlib').Path('{path}').touch()}}",
        "open('{path}','w').write('x') or 9",
        "\\operatorname{{exec}}(open('{path}','w'))",
        "9 + f(open('{path}','w'))",
    ],
)
def test_payloads_do_nothing(payload: str, tmp_path: Path) -> None:
    target = tmp_path / "proof"
    for gold in ("9", "f(x)", "\\sin x"):
        assert not judged(gold, payload.format(path=target)).equal
    assert not target.exists()


@pytest.mark.parametrize(
    "answer",
    [
        "(" * 2000 + "1" + ")" * 2000,
        "\\frac{1}{" * 400 + "1" + "}" * 400,
        "1" + "/2" * 900,
        "x" + "!" * 1500,
        "-" * 1500 + "1",
        "2" + "^2" * 700,
        "|" * 60 + "x" + "|" * 60,
        "{" * 500,
        "9^{9^{9^9}}",
        "(a+b+c+d+e+f)^{40}(a-b)^{40}",
        "\\binom{10^9}{10^8}",
        "(10^9)!",
        "1e1000000",
        ",".join(str(k) for k in range(1000)),
        "\\sqrt{" * 60 + "2" + "}" * 60,
        "1 " * 1500,
        "x_{" * 300 + "1" + "}" * 300,
        "\\sum_{k=1}^{10^9} k",
        "\\text{" * 50 + "a" + "}" * 50,
        "\x00\ud800\uffff",
        "2^{2^{100}} - 2^{2^{100}} + 1",
        "+".join(f"\\sqrt{{{p}}}" for p in range(2, 400)),
    ],
    ids=range(22),
)
def test_hostile_shapes_are_decided_or_handed_on(answer: str) -> None:
    for gold in ("1", "x+1", "\\{1, 2\\}", "(a+b+c+d+e+f)^{40}", "the word"):
        found = decide(prepared((gold,)), answer, DEFAULT)
        assert isinstance(found, Decision | AlgebraTask)
        assert not (isinstance(found, Decision) and found.equal)


@pytest.mark.parametrize(
    "answer",
    [
        "9^{9^{9^9}}",
        "\\binom{10^9}{10^8}",
        "(10^9)!",
        "\\sin(10^{10^{10}})",
        "\\lfloor\\pi^{\\pi^{40}}\\rfloor",
    ],
)
def test_the_worker_refuses_numbers_out_of_range(answer: str) -> None:
    assert not judged("1", answer).equal


def test_threads_agree() -> None:
    plain = [case for case in CASES if "settings" not in case and "type" not in case][:80]

    def work(_: int) -> list[bool]:
        return [judged(case["gold"], case["answer"]).equal for case in plain]

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(work, range(3)))
    assert results == [[case["equal"] for case in plain]] * 3
