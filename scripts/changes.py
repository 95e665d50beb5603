"""Every small change of a module, for `make mutate`: mutmut's operators and four of our own.

A change is known by its function and by the text that it takes out and puts in, not by a line: it
keeps its name while the code around it moves. Owns what is changed and what is left alone.

Left alone: annotations, decorators, imports, docstrings and assertions. Annotations and decorators
are mypy's and the import's; an assertion fails when our own mistake is made elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import libcst as cst
from libcst import matchers as m
from libcst.metadata import MetadataWrapper, WhitespaceInclusivePositionProvider
from mutmut.mutation import mutators

NOT_CHANGED: Final = (
    cst.Annotation,
    cst.Assert,
    cst.Decorator,
    cst.Import,
    cst.ImportFrom,
)
# Of these calls one argument less is a TypeError.
SAME_ARGUMENTS: Final = m.Name("cast") | m.Name("isinstance") | m.Name("len")
# Letters in upper and lower case say nothing that two X more don't.
OPERATORS: Final[tuple[Any, ...]] = tuple(
    pair for pair in mutators.mutation_operators if pair[1] is not mutators.operator_string
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One module with one change in it."""

    module: str  # path below src
    function: str  # its qualified name; "" for the module's own lines
    old: str
    new: str
    number: int  # of changes alike in this function, from 1
    code: str  # of the whole module

    @property
    def key(self) -> str:
        again = f" #{self.number}" if self.number > 1 else ""
        return f"{self.module}:{self.function}: {self.old} => {self.new}{again}"


def changes(module: str, text: str) -> Iterator[Change]:
    """Yield every change that still compiles."""
    tree = cst.parse_module(text)
    finder = _Finder()
    tree.visit(finder)
    place = _Places(tree, text)
    alike: Counter[tuple[str, str, str]] = Counter()
    for function, node, new in finder.found:
        code = place.replaced(node, new)
        if code == text or not _compiles(code):
            continue
        gone, come = _difference(text, code)
        alike[function, gone, come] += 1
        yield Change(
            module=module,
            function=function,
            old=gone,
            new=come,
            number=alike[function, gone, come],
            code=code,
        )


class _Places:
    """Puts a node's new text where the old one is, as far as that can be done without the rest."""

    def __init__(self, tree: cst.Module, text: str) -> None:
        wrapper = MetadataWrapper(tree, unsafe_skip_copy=True)
        self._ranges = wrapper.resolve(WhitespaceInclusivePositionProvider)
        self._tree, self._text = tree, text
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def replaced(self, node: cst.CSTNode, new: cst.CSTNode) -> str:
        where = self._ranges.get(node)
        if where is not None:
            start = self._starts[where.start.line - 1] + where.start.column
            end = self._starts[where.end.line - 1] + where.end.column
            if self._text[start:end] == self._tree.code_for_node(node):
                return self._text[:start] + self._tree.code_for_node(new) + self._text[end:]
        changed = self._tree.deep_replace(node, new)
        assert isinstance(changed, cst.Module)
        return changed.code


class _Finder(cst.CSTVisitor):
    """Collects a function's name, a node of it, and what to put there instead."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, cst.CSTNode, cst.CSTNode]] = []
        self._names: list[str] = []
        self._targets: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, NOT_CHANGED) or _is_docstring(node):
            return False
        if any(node is target for target in self._targets):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.append(node.name.value)
        name = ".".join(self._names)
        self.found += [(name, node, new) for new in instead(node)]
        if isinstance(node, cst.If | cst.While) and not isinstance(node.test, cst.UnaryOperation):
            test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
            self.found.append((name, node.test, cst.UnaryOperation(cst.Not(), test)))
        if isinstance(node, cst.For | cst.CompFor):
            self._targets.append(node.target)  # unpacking less is an error at once
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._names.pop()


def instead(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield what a node may be changed into."""
    if isinstance(node, cst.Call) and m.matches(node.func, SAME_ARGUMENTS):
        return
    for kind, operator in OPERATORS:
        if isinstance(node, kind):
            yield from operator(node)
    yield from _own(node)


def _own(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    if isinstance(node, cst.SimpleString) and not node.value.startswith(('"""', "'''")):
        yield node.with_changes(value=f"{node.prefix}{node.quote}XX{node.raw_value}{node.quote}")
    elif isinstance(node, cst.Set | cst.List | cst.Tuple | cst.Dict):
        for index in range(len(node.elements)):
            rest = _without(node.elements, index)
            if rest or not isinstance(node, cst.Set):  # {} is no set
                yield node.with_changes(elements=rest)
    elif isinstance(node, cst.CompFor) and node.ifs:
        yield node.with_changes(ifs=[])
    elif isinstance(node, cst.Return) and node.value is not None:
        if not (isinstance(node.value, cst.Name) and node.value.value == "None"):
            yield node.with_changes(value=cst.Name("None"))
    elif isinstance(node, cst.Raise) or (
        isinstance(node, cst.Expr) and isinstance(node.value, cst.Call | cst.Yield)
    ):
        yield cst.Pass(semicolon=node.semicolon)


def _without(elements: Sequence[Any], index: int) -> list[Any]:
    rest = [*elements[:index], *elements[index + 1 :]]
    if rest and index == len(elements) - 1 and len(rest) > 1:
        rest[-1] = rest[-1].with_changes(comma=elements[-1].comma)
    return rest


def _is_docstring(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Expr) and isinstance(
        node.value, cst.SimpleString | cst.ConcatenatedString
    )


def _compiles(code: str) -> bool:
    try:
        compile(code, "changed", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _difference(before: str, after: str) -> tuple[str, str]:
    """Return the lines that differ, each side in one."""
    gone, come = before.splitlines(), after.splitlines()
    while gone and come and gone[-1] == come[-1]:
        del gone[-1], come[-1]
    same = 0
    while same < min(len(gone), len(come)) and gone[same] == come[same]:
        same += 1
    return tuple(" ".join(line.strip() for line in lines[same:]) for lines in (gone, come))  # type: ignore[return-value]
