"""The rooms hold the budgets of CONTRIBUTING.md, in lines of code."""

from __future__ import annotations

import ast
import re
from functools import cache

from _support.paths import REPOSITORY

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: A row of the table: the folders, and their budget.
_ROW = re.compile(r"^\| (`\w.*`) \|.*\| ([\d,]+) \|$", re.MULTILINE)
BUDGETS = {
    tuple(re.findall(r"[\w/]+", folders)): int(lines.replace(",", ""))
    for folders, lines in _ROW.findall((REPOSITORY / "CONTRIBUTING.md").read_text())
}


@cache
def code_lines(path):
    """Count the lines without docstrings, comments, blank lines and imports."""
    if path.is_dir():
        return sum(map(code_lines, [*path.glob("*/"), *path.glob("*.py")]))
    return _code_lines(path.read_text())


def _code_lines(source):
    lines = source.splitlines()
    left_out = {n for n, line in enumerate(lines, 1) if line.strip()[:1] in ("", "#")}
    for node in statements(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            left_out.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            left_out.update(range(node.lineno, node.end_lineno + 1))
    return len(lines) - len(left_out)


def statements(node):
    """Yield a module and the statements in it; expressions are passed over, as they are many."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield from statements(child)


def test_a_line_of_code_has_more_than_a_comment_an_import_or_a_docstring():
    source = '"""Text."""\nimport os\n\n# a comment\nx = 1  # another\ny = [\n    2,\n]\n'
    assert _code_lines(source) == 4


def test_every_room_has_a_budget():
    rooms = {f"lm_eval_bayes/{path.name}" for path in (REPOSITORY / "lm_eval_bayes").iterdir()}
    rooms = {room for room in rooms if (REPOSITORY / room / "__init__.py").exists()}
    assert rooms <= {folder for folders in BUDGETS for folder in folders}


def test_every_room_holds_its_budget():
    lines = {
        folders: sum(code_lines(REPOSITORY / folder) for folder in folders) for folders in BUDGETS
    }
    assert {folders: n for folders, n in lines.items() if n > BUDGETS[folders]} == {}
