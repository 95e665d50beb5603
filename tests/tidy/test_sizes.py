"""Goal: code that fits on a screen or two. Method: count lines; each exception is named here.

A function is measured without its signature and docstring: a command's many options are not its
fault.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("src", "bench", "scripts") for path in (ROOT / folder).rglob("*.py")
)
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
LARGER_MODULES = {
    "src/holdfast/log/log.py": 800,  # the state of one replica changes together, so it is one file
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    assert text.count("\n") <= LARGER_MODULES.get(name, MODULE_LINES_MAX), f"{name} is too long"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = body_lines(node)
            assert lines <= FUNCTION_LINES_MAX, f"{name}: {node.name} has {lines} lines"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    if not statements:
        return 0
    assert function.end_lineno is not None
    return function.end_lineno - statements[0].lineno + 1
