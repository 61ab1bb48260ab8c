"""Imports go one way: each package may import only those that the table names, also inside functions."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "tilewright"
BASE = {"errors", "source", "options", "target"}

# Package or module -> what of ours it may import (itself always).
LAYERS: dict[str, set[str]] = {
    "errors": {"source"},
    "source": set(),
    "options": {"errors"},
    "target": {"errors"},
    "ir": BASE,
    "language": BASE | {"ir"},
    "layout": {"language"},
    "dialect": BASE | {"ir", "language"},
    "frontend": BASE | {"ir", "language"},
    "analysis": BASE | {"ir"},
    "passes": BASE | {"ir", "analysis"},
    "targets": BASE | {"ir", "analysis"},  # and passes, in a backend.py only
    "simulator": BASE - {"options"} | {"ir"},
    "emulator": BASE - {"options"} | {"ir"},
    "compiler": BASE | {"ir", "targets"},
    "runtime": BASE | {"ir", "language", "frontend", "analysis", "compiler", "targets", "simulator", "__init__"},
    "profiler": BASE | {"ir", "language", "runtime"},
    "autotune": BASE | {"ir", "runtime", "profiler"},
    "report": BASE | {"ir", "analysis", "targets", "compiler", "runtime", "profiler"},
    "cli": BASE | {"ir", "compiler", "targets", "runtime", "profiler", "autotune", "report"},
    "__init__": BASE | {"ir", "language", "layout", "dialect", "frontend", "runtime", "profiler", "autotune"},
}
# Of `targets`, everything above it sees the registry alone; the back-ends are its own business.
PUBLIC_TARGETS = "tilewright.targets.registry"
# Packages that work for every target and so must not ask which one it is.
SHARED = ("ir", "analysis", "language", "frontend", "passes", "compiler", "simulator")
TARGET_KINDS = {"cpu", "reference", "hip", "cuda"}

FILES = sorted(ROOT.rglob("*.py"))


def layer(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def resolve(module: str, names: list[str]) -> list[str]:
    """The modules that `from module import names` reaches."""
    if module == "tilewright":
        return [f"tilewright.{n}" if layer_exists(n) else "tilewright" for n in names]
    return [module]


def layer_exists(name: str) -> bool:
    return (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, module of ours) of every import in a file; those for the type checker only are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checking = {
        id(inner)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for statement in block.body
        for inner in ast.walk(statement)
    }
    found = []
    for item in ast.walk(tree):
        if id(item) in checking:
            continue
        modules = []
        if isinstance(item, ast.Import):
            modules = [alias.name for alias in item.names]
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, f"{path}:{item.lineno}: relative import"
            modules = resolve(item.module, [alias.name for alias in item.names])
        found += [(item.lineno, m) for m in modules if m.partition(".")[0] == "tilewright"]
    return found


def violations(path: Path) -> list[str]:
    here = layer(path)
    allowed = LAYERS[here] | {here}
    if here == "targets" and path.name == "backend.py":
        allowed = allowed | {"passes"}
    wrong = []
    for line, module in imports(path):
        parts = module.split(".")
        there = parts[1] if len(parts) > 1 else "__init__"
        if there not in allowed:
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
        elif there == "targets" and here != "targets" and module != PUBLIC_TARGETS:
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports {module} instead of the registry")
        elif there == here == "targets" and other_back_end(path, parts):
            wrong.append(f"{path.relative_to(ROOT)}:{line} imports another back-end, {module}")
    return wrong


def other_back_end(path: Path, parts: list[str]) -> bool:
    """Whether a file of one back-end imports from another's directory."""
    mine = path.relative_to(ROOT / "targets").parts
    theirs = parts[2] if len(parts) > 2 else ""
    return len(mine) > 1 and (ROOT / "targets" / theirs).is_dir() and theirs not in ("", mine[0])


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    assert violations(path) == []


def test_every_package_has_its_layer():
    assert {layer(path) for path in FILES} <= set(LAYERS)


def test_the_table_has_no_cycle():
    state: dict[str, bool] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in state:
            for below in LAYERS[name] - {"__init__"}:
                visit(below, (*trail, name))
            state[name] = True

    for name in LAYERS:
        visit(name, ())


def test_the_checker_sees_imports_inside_functions(tmp_path, monkeypatch):
    monkeypatch.setattr("test_layering.ROOT", tmp_path)
    (tmp_path / "ir").mkdir()
    file = tmp_path / "ir" / "bad.py"
    file.write_text("def f():\n    from tilewright.passes.x import y\n    import tilewright.targets.cpu.emit\n")
    assert [text.partition(" ")[0] for text in violations(file)] == ["ir/bad.py:2", "ir/bad.py:3"]


def kind_comparisons(path: Path) -> list[int]:
    """Lines that compare something called kind or target with the name of a target, or match on it."""
    found = []
    for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(item, ast.Compare):
            sides = [item.left, *item.comparators]
            words = {
                c.value for s in sides for c in ast.walk(s) if isinstance(c, ast.Constant) and isinstance(c.value, str)
            }
            if words & TARGET_KINDS and "target" in ast.unparse(item):
                found.append(item.lineno)
        elif isinstance(item, ast.Match) and "target" in ast.unparse(item.subject):
            found.append(item.lineno)
    return found


@pytest.mark.parametrize("path", [f for f in FILES if layer(f) in SHARED], ids=lambda p: str(p.relative_to(ROOT)))
def test_shared_code_does_not_ask_for_the_target(path):
    assert kind_comparisons(path) == []


def test_the_checker_sees_a_comparison(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(
        'if target.kind == "hip":\n    pass\nif target.kind in ("cuda", "hip"):\n    pass\nif kind == "serial":\n    pass\n'
    )
    assert kind_comparisons(file) == [1, 3]
