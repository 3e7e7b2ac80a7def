"""docs/reasons.md explains every reason that the code can give, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from cheapspec.core import request
from cheapspec.core.fields import CHECKED

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "cheapspec"
ARGUMENT = {
    "Bypass": 0,
    "NoDraft": 0,
    "Unusable": 0,
    "GoDirect": 0,
    "because": 0,
    "Passed": 3,
    "Decision": 4,
    "Skipped": 0,
}
"""Which argument of a call is a reason."""


def constants(node: ast.AST) -> Iterator[str]:
    """Strings that an expression can be: a constant, or either side of a choice."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from constants(node.body)
        yield from constants(node.orelse)


def given(tree: ast.AST) -> Iterator[str]:
    """Reasons in one module: arguments of the calls above, and values put into an attribute ``reason``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            place = ARGUMENT.get(name)
            if place is not None and len(node.args) > place:
                yield from constants(node.args[place])
            yield from (text for word in node.keywords if word.arg == "reason" for text in constants(word.value))
        elif isinstance(node, ast.Assign):
            targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for target, value in zip(targets, values, strict=False):
                if isinstance(target, ast.Attribute) and target.attr == "reason":
                    yield from constants(value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "reason":
            yield from constants(node.value) if node.value is not None else ()


def used() -> set[str]:
    found = {reason for _, reason in CHECKED.values()} | set(request._PARTS.values())  # pyright: ignore[reportPrivateUsage]  # a table of reasons
    for path in PACKAGE.rglob("*.py"):
        if "testing" not in path.relative_to(PACKAGE).parts:
            found |= set(given(ast.parse(path.read_text("utf-8"))))
    return found - {""}


def explained() -> list[str]:
    page = (ROOT / "docs" / "reasons.md").read_text("utf-8")
    return re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)


def test_the_page_explains_exactly_the_reasons_that_the_code_gives() -> None:
    """Every reason in the code has one row, every row a reason in the code."""
    rows = explained()
    assert len(rows) == len(set(rows))
    assert set(rows) == used()


def test_reasons_are_found_where_the_code_gives_them() -> None:
    """The search sees the ones that each kind of place gives: a table, a call, an assignment."""
    assert {"tools", "images", "temperature_unset", "draft_deadline", "cannot_score", "not_probed"} <= used()
