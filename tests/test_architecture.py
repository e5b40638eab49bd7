"""The shape of the code: which way imports point, how large things may be, what is never written."""

import ast
import doctest
import importlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("rewards", "grpo", "data_prep", "conf")
MAX_FUNCTION_LINES, MAX_PARAMETERS, MAX_FILE_LINES = 60, 6, 400
IMPORT_MILLISECONDS = 100

PLAIN = (
    *("errors", "types", "scorer", "text", "format", "steps", "composite", "options"),
    *("completer", "step_estimates", "step_labels"),
)
"""Modules of rewards that load the standard library and each other, not even inside a function more."""
ONLY_IN: dict[tuple[str, ...], tuple[str, ...]] = {
    ("torch", "transformers", "accelerate", "peft", "safetensors", "tokenizers"): (
        "grpo/",
        "rewards/models/",
        "data_prep/transformers_completer.py",
    ),
    ("sympy", "mpmath", "math_verify", "latex2sympy2_extended"): ("rewards/verifiers/equivalence/",),
    ("hydra", "omegaconf"): (
        "/config.py",
        "rewards/config_source.py",
        "rewards/overrides.py",
        "grpo/sweep.py",
    ),
}
"""Libraries and the files, by a part of their path, that may load them; programs may load Hydra too."""
FORBIDDEN = {"rewards": ("grpo", "data_prep"), "grpo": ("data_prep",), "data_prep": ("grpo",)}
BROAD_EXCEPT = ("rewards/isolation.py", "grpo/train.py")
"""The boundary to the workers, and the shutdown of training."""


class Import(NamedTuple):
    """A module named in an import, the line, and where it stands: top, typing or inside (a function)."""

    module: str
    line: int
    place: str


SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
NAMES = [path.relative_to(ROOT).as_posix() for path in SOURCES]


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


def functions(name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        node for node in ast.walk(tree_of(name)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def at_line(name: str, node: ast.expr | ast.stmt | ast.excepthandler, text: str) -> str:
    return f"{name}:{node.lineno}: {text}"


def imports(name: str) -> Iterator[Import]:
    place_of = {id(node): "top" for node in tree_of(name).body}
    for node in tree_of(name).body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            place_of |= {id(inner): "typing" for inner in node.body}
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, place_of.get(id(node), "inside"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: relative import"
            # `from a import b` may name a module b of the package a.
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield Import(
                    full if file_of(full) else str(node.module), node.lineno, place_of.get(id(node), "inside")
                )


def file_of(module: str) -> str | None:
    """The file of one of our modules, None for a library's."""
    base = module.replace(".", "/")
    return next((name for name in (f"{base}.py", f"{base}/__init__.py") if name in NAMES), None)


def is_program(name: str) -> bool:
    return any(
        isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in tree_of(name).body
    )


def is_public(name: str) -> bool:
    return not name.startswith("_")


@pytest.mark.parametrize("name", NAMES)
def test_imports_point_one_way(name: str) -> None:
    package = name.split("/")[0]
    wrong = [
        f"{name}:{found.line}: {found.module}"
        for found in imports(name)
        if found.module.split(".")[0] in FORBIDDEN.get(package, ())
    ]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_libraries_are_loaded_only_where_they_belong(name: str) -> None:
    wrong: list[str] = []
    for found in imports(name):
        library = found.module.split(".")[0]
        for libraries, places in ONLY_IN.items():
            hydra_program = "hydra" in libraries and is_program(name)
            if library in libraries and not hydra_program and not any(place in name for place in places):
                wrong.append(f"{name}:{found.line}: {found.module}: only in {', '.join(places)}")
    assert wrong == []


@pytest.mark.parametrize("name", [f"rewards/{module}.py" for module in PLAIN])
def test_plain_modules_load_the_standard_library_only(name: str) -> None:
    wrong = [
        f"{name}:{found.line}: {found.module}"
        for found in imports(name)
        if found.module.split(".")[0] not in {*sys.stdlib_module_names, "rewards"}
    ]
    assert wrong == []


def test_there_is_no_circle_of_imports() -> None:
    needs = {
        name: {file for found in imports(name) if found.place == "top" and (file := file_of(found.module))}
        - {name}
        for name in NAMES
    }
    while free := {name for name, needed in needs.items() if not needed & needs.keys()}:
        needs = {name: needed for name, needed in needs.items() if name not in free}
    assert sorted(needs) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_import_inside_a_function_says_why(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    silent = [
        f"{name}:{found.line}: {found.module}"
        for found in imports(name)
        if found.place == "inside"
        and "#" not in lines[found.line - 1]
        and not lines[found.line - 2].lstrip().startswith(("#", "import ", "from "))
    ]
    assert silent == []


@pytest.mark.parametrize("name", NAMES)
def test_sizes(name: str) -> None:
    wrong: list[str] = []
    length = len((ROOT / name).read_text(encoding="utf-8").splitlines())
    if length > MAX_FILE_LINES:
        wrong.append(f"{name}: {length} lines")
    for function in functions(name):
        size = (function.end_lineno or 0) - function.lineno + 1
        arguments = function.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        own = [parameter for parameter in parameters if parameter.arg not in ("self", "cls")]
        if size > MAX_FUNCTION_LINES:
            wrong.append(at_line(name, function, f"{function.name}: {size} lines"))
        if len(own) > MAX_PARAMETERS:
            wrong.append(at_line(name, function, f"{function.name}: {len(own)} parameters"))
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_functions_are_annotated(name: str) -> None:
    bare = []
    for function in functions(name):
        arguments = function.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += [parameter for parameter in (arguments.vararg, arguments.kwarg) if parameter]
        untyped = [p.arg for p in parameters if p.annotation is None and p.arg not in ("self", "cls")]
        if untyped or (function.returns is None):
            bare.append(at_line(name, function, f"{function.name}: {', '.join(untyped) or 'return'}"))
    assert bare == []


@pytest.mark.parametrize("name", NAMES)
def test_broad_excepts_stand_at_two_places_only(name: str) -> None:
    broad = [
        at_line(name, node, ast.unparse(node.type) if node.type else "except:")
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or {"Exception", "BaseException"} & set(ast.unparse(node.type).strip("()").split(", "))
        )
    ]
    assert name in BROAD_EXCEPT or broad == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_never_written(name: str) -> None:
    wrong = [
        at_line(name, function, f"{function.name}: takes **{function.args.kwarg.arg}")
        for function in functions(name)
        if function.args.kwarg and is_public(function.name)
    ]
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "hasattr" or (called == "getattr" and len(node.args) == 3):
                wrong.append(at_line(name, node, f"{called}: features are typed, not asked for"))
            if called in ("eval", "exec", "sympify", "parse_expr", "sympy.sympify", "sympy.parse_expr"):
                wrong.append(at_line(name, node, f"{called}: text is never run"))
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Manager", "Helper", "Util", "Utils")):
            wrong.append(at_line(name, node, f"{node.name}: says nothing of what it is"))
    if Path(name).name in ("utils.py", "helpers.py", "common.py", "misc.py"):
        wrong.append(f"{name}: says nothing of what it holds")
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_modules_and_public_names_are_described(name: str) -> None:
    tree = tree_of(name)
    silent = [] if ast.get_docstring(tree) or not tree.body else [name]
    scopes: list[ast.Module | ast.ClassDef] = [
        tree,
        *(node for node in tree.body if isinstance(node, ast.ClassDef) and is_public(node.name)),
    ]
    for scope in scopes:
        silent += [
            at_line(name, node, node.name)
            for node in scope.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and is_public(node.name)
            and not ast.get_docstring(node)
        ]
    assert silent == []


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_module_imports() -> None:
    modules = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in NAMES]
    code = f"import importlib\nfor name in {modules}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name", [name for name in NAMES if ">>> " in (ROOT / name).read_text(encoding="utf-8")]
)
def test_examples_in_docstrings_hold(name: str) -> None:
    module = importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def modules_after(statement: str) -> set[str]:
    """Names of all modules loaded in a fresh interpreter after the statement."""
    code = f"{statement}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_rewards_loads_the_standard_library_only() -> None:
    loaded = modules_after("import rewards") - modules_after("pass")
    foreign = {name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if name.split(".")[0] != "rewards"} == set()
    assert "rewards.types" in foreign


@pytest.mark.parametrize("module", ["rewards.config", "rewards.build", "grpo.config", "grpo.algorithm"])
def test_configuration_loads_neither_torch_nor_sympy(module: str) -> None:
    assert modules_after(f"import {module}") & {"torch", "transformers", "sympy", "math_verify"} == set()


def test_importing_rewards_is_quick() -> None:
    # Measured inside one process, and the quickest of several: the machine may be busy.
    code = "import time; start = time.perf_counter(); import rewards; print(time.perf_counter() - start)"
    seconds = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    assert 1000 * min(seconds) < IMPORT_MILLISECONDS
