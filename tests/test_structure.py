"""The package's imports: no cycles, no two modules that import each other, every room described."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from _support.paths import REPOSITORY

ROOT = REPOSITORY / "lm_eval_bayes"


def module_name(path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def import_nodes(tree: ast.AST, in_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield imports; those under `if TYPE_CHECKING` are left out, as they never run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.expr) or is_for_type_checkers(node):
            continue
        elif in_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from import_nodes(node, in_functions)


@cache
def imports(in_functions: bool) -> dict[str, set[str]]:
    graph = {}
    for module in MODULES:
        imported = set()
        for node in import_nodes(tree_of(module), in_functions):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif node.module:
                for alias in node.names:
                    submodule = f"{node.module}.{alias.name}"
                    imported.add(submodule if submodule in MODULES else node.module)
        graph[module] = imported & set(MODULES) - {module}
    return graph


def test_no_two_modules_import_each_other_even_inside_functions():
    graph = imports(in_functions=True)
    pairs = {
        tuple(sorted((module, other)))
        for module, imported in graph.items()
        for other in imported
        if module in graph[other]
    }
    assert sorted(pairs) == []


def test_no_cycle_of_imports_at_module_level():
    graph = imports(in_functions=False)
    finished: set[str] = set()
    cycles = []

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            cycles.append(path[path.index(module) :])
        elif module not in finished:
            for other in sorted(graph[module]):
                visit(other, (*path, module))
            finished.add(module)

    for module in graph:
        visit(module, ())
    assert cycles == []


def test_every_room_says_what_belongs_there():
    undescribed = [
        module
        for module, path in MODULES.items()
        if path.name == "__init__.py" and not ast.get_docstring(tree_of(module))
    ]
    assert undescribed == []


def test_every_deliberate_error_names_its_rule():
    """An error whose class does not fix the rule gets it as its second argument."""
    classes = [
        node
        for module in MODULES
        for node in tree_of(module).body
        if isinstance(node, ast.ClassDef)
    ]
    deliberate, fixed = {"LmEvalBayesError"}, set()
    for _ in range(6):  # more than the classes of the longest derivation
        for node in classes:
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            if bases & deliberate:
                deliberate.add(node.name)
                own = any(ast.unparse(statement).startswith("rule") for statement in node.body)
                if bases & fixed or own:
                    fixed.add(node.name)
    named = {f"{name}(" for name in deliberate - fixed}
    unnamed = [
        f"{module}:{node.lineno}"
        for module, path in MODULES.items()
        if any(call in path.read_text(encoding="utf-8") for call in named)
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in deliberate - fixed
        and len(node.args) < 2
    ]
    assert unnamed == []
