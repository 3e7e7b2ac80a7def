"""The layer rule: who may import whom, read from the source itself.

CONTRIBUTING.md gives the rule in prose, this table enforces it. Every import counts: at the top, inside a
function, under ``TYPE_CHECKING``, relative, and ``importlib.import_module("…")`` with a constant.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "cheapspec"

# fmt: off
OUTSIDE_WORLD = {
    "asyncio", "asyncore", "concurrent", "contextvars", "ctypes", "datetime", "dbm", "fileinput", "ftplib",
    "getpass", "glob", "http", "imaplib", "importlib", "io", "logging", "mmap", "multiprocessing", "nntplib", "os",
    "pathlib", "poplib", "queue", "random", "sched", "secrets", "select", "selectors", "shelve", "shutil", "signal",
    "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "sys", "syslog", "telnetlib", "tempfile",
    "threading", "_thread", "time", "urllib.error", "urllib.request", "urllib.robotparser", "uuid", "warnings",
    "webbrowser", "wsgiref", "xmlrpc", "zoneinfo",
}
# fmt: on
"""What the pure layers may not touch: network, clock, randomness, database, files, processes, threads."""

OUTSIDE_CALLS = {"open", "print", "input", "__import__", "exec", "eval", "breakpoint"}


@dataclass(frozen=True)
class Row:
    """``ours``: places it may import besides itself. ``libraries``: third-party modules, ``None`` any but openai."""

    ours: frozenset[str]
    libraries: frozenset[str] | None = frozenset()
    pure: bool = False


def row(ours: str = "", libraries: str = "", *, pure: bool = False) -> Row:
    return Row(frozenset(ours.split()), frozenset(libraries.split()), pure)


PYTHON_DOOR = "client transport options doors module connections pickles unsent"
FOUNDATION = "errors core rules backends drive prices ledger report settings embedded"
TABLE: dict[str, Row] = {
    "errors": row(),
    "core": row("errors", pure=True),
    "rules": row("errors core", "jsonschema referencing"),
    "backends": row("errors core", pure=True),
    "drive": row("errors core rules backends", "httpx2 tenacity"),
    "prices": row("errors core", "genai_prices httpx2 pydantic"),
    "ledger": row("errors core", "sqlalchemy"),
    "report": row("errors core rules ledger", "rich"),
    "settings": row("errors core rules backends", "pydantic"),
    "embedded": row("errors", "gguf numpy xllamacpp"),
    "options": row("errors", "openai httpx2"),
    "connections": row("", "openai httpx2"),
    "pickles": row("", "openai"),
    "unsent": row("", "openai httpx2"),
    "doors": row(FOUNDATION, "httpx2"),
    "client": row(FOUNDATION + " connections doors options transport unsent", "openai httpx2 pydantic"),
    "transport": row(FOUNDATION + " doors options client unsent", "openai httpx2 pydantic"),
    "bench": row(FOUNDATION + " doors client", "httpx2"),
    "estimating": row(FOUNDATION + " rules bench"),
    "module": row(FOUNDATION + " connections doors client pickles transport", "openai"),
    "proxy": row(FOUNDATION, "starlette uvicorn httpx2 httpcore2 pydantic"),
    "testing": row("errors core backends drive", "starlette uvicorn httpx2"),
    "cli": Row(frozenset(f"{FOUNDATION} {PYTHON_DOOR} bench estimating proxy testing __init__".split()), None),
    "__main__": row("cli"),
    "__init__": Row(frozenset(f"{FOUNDATION} {PYTHON_DOOR}".split()), frozenset({"openai"})),
}
"""Places of the package in the order in which they build on one another. The doors are ``client`` with
``transport`` and their parts, ``proxy`` and ``cli``; only ``cli`` may start another door. ``openai`` stands in
the rows of the Python door (and of the package itself, which forwards openai's names) and in no other."""


def imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a file imports, and ``call:NAME`` for calls that reach outside."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in {"import_module", "__import__"} and node.args and isinstance(node.args[0], ast.Constant):
                yield node.lineno, str(node.args[0].value)
            if isinstance(node.func, ast.Name) and name in OUTSIDE_CALLS:
                yield node.lineno, f"call:{name}"


def violations(root: Path) -> list[str]:
    """Every breach in the package at ``root``, one line each; unknown places are breaches too."""
    found: list[str] = []
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        place = inside.parts[0].removesuffix(".py")
        module = ".".join([root.name, *inside.with_suffix("").parts]).removesuffix(".__init__")
        allowed = TABLE.get(place)
        if allowed is None:
            found.append(f"{inside}: the table of layers has no row {place!r}")
            continue
        for line, name in imports(path, module):
            if reason := breach(place, allowed, name, root):
                found.append(f"{inside}:{line}: {reason}")
    return found


def breach(place: str, allowed: Row, name: str, root: Path) -> str | None:
    """Why this place may not import this name, or ``None``."""
    if name.startswith("call:"):
        return f"{place} is pure but calls {name[5:]}()" if allowed.pure else None
    top, _, rest = name.partition(".")
    if top == root.name:
        head = rest.split(".")[0]
        known = (root / head).is_dir() or (root / f"{head}.py").is_file()
        target = head if head and known else "__init__"  # a name of the package itself, such as its OpenAI
        return None if target == place or target in allowed.ours else f"{place} may not import {root.name}.{target}"
    if top in sys.stdlib_module_names:
        dotted = {name, name.rpartition(".")[0], top}
        return f"{place} is pure but imports {name}" if allowed.pure and dotted & OUTSIDE_WORLD else None
    if allowed.libraries is None:
        return f"{place} may not import openai" if top == "openai" else None
    return None if top in allowed.libraries else f"{place} may not import {top}"


def test_the_package_keeps_its_layers() -> None:
    """No file of the package imports what its row of the table does not name."""
    assert list(PACKAGE.rglob("*.py")), "the package has no source to check"
    assert violations(PACKAGE) == []


def test_ledger_and_prices_reach_the_driver_only_as_protocols() -> None:
    """The driver names neither module: it is given objects of the shapes in core.ports."""
    assert not {"ledger", "prices"} & TABLE["drive"].ours
    assert not {"ledger", "prices"} & TABLE["core"].ours


@pytest.mark.parametrize(
    ("place", "source", "said"),
    [
        ("core/engine.py", "import socket", "core is pure but imports socket"),
        ("core/engine.py", "from urllib import request", "core is pure but imports urllib.request"),
        ("core/engine.py", "import urllib.request as r", "core is pure but imports urllib.request"),
        ("core/engine.py", "from time import monotonic", "core is pure but imports time.monotonic"),
        ("core/engine.py", "from os.path import join", "core is pure but imports os.path.join"),
        ("core/engine.py", "def f():\n    import random", "core is pure but imports random"),
        ("core/engine.py", "text = open('x').read()", "core is pure but calls open()"),
        ("core/engine.py", "import httpx2", "core may not import httpx2"),
        ("core/engine.py", "from ..drive import run", "core may not import pkg.drive"),
        ("core/engine.py", "from .. import drive", "core may not import pkg.drive"),
        ("core/engine.py", "from pkg.backends.vllm import X", "core may not import pkg.backends"),
        ("core/engine.py", "from pkg import OpenAI", "core may not import pkg.__init__"),
        ("core/__init__.py", "from ..drive import run", "core may not import pkg.drive"),
        ("backends/vllm.py", "import sqlite3", "backends is pure but imports sqlite3"),
        ("backends/vllm.py", "import asyncio", "backends is pure but imports asyncio"),
        ("drive/sync.py", "import pkg.ledger.memory", "drive may not import pkg.ledger"),
        ("drive/sync.py", "from pkg.prices import PriceBook", "drive may not import pkg.prices"),
        ("drive/sync.py", "import openai", "drive may not import openai"),
        (
            "drive/sync.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import openai",
            "drive may not import openai",
        ),
        ("drive/sync.py", "import importlib\nx = importlib.import_module('openai')", "drive may not import openai"),
        ("client.py", "from pkg.proxy import app", "client may not import pkg.proxy"),
        ("client.py", "from pkg import cli", "client may not import pkg.cli"),
        ("proxy/app.py", "from pkg.client import OpenAI", "proxy may not import pkg.client"),
        ("cli.py", "import openai", "cli may not import openai"),
        ("helpers.py", "", "the table of layers has no row 'helpers'"),
    ],
)
def test_a_breach_is_caught(tmp_path: Path, place: str, source: str, said: str) -> None:
    """Each way of breaking the rule, in a package of its own, is reported with its file."""
    root = package(tmp_path, place, source)
    assert [line.split(": ", 1)[1] for line in violations(root)] == [said]
    assert violations(root)[0].startswith(place)


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("core/engine.py", "import json, math, re\nfrom urllib.parse import urlsplit\nfrom collections import abc"),
        ("core/engine.py", "from .effects import Start\nfrom . import effects\nfrom pkg.errors import E"),
        ("backends/vllm.py", "from pkg.core.effects import Start\nfrom ..core import effects"),
        ("drive/sync.py", "import time, threading, httpx2, tenacity\nfrom pkg.backends.vllm import X"),
        ("client.py", "import openai\nfrom pkg.ledger import memory\nfrom pkg.transport import T"),
        ("cli.py", "import typer\nfrom pkg.proxy import app\nfrom pkg import OpenAI\nprint('x')"),
        ("__init__.py", "from openai import *\nfrom pkg.client import OpenAI"),
    ],
)
def test_what_the_table_allows_is_not_reported(tmp_path: Path, place: str, source: str) -> None:
    """The test does not cry wolf."""
    assert violations(package(tmp_path, place, source)) == []


def package(folder: Path, place: str, source: str) -> Path:
    """A package ``pkg`` with all places of the table, empty but for one file."""
    root = folder / "pkg"
    for name in ("core", "backends", "drive", "ledger", "proxy"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").touch()
    for name in ("errors", "prices", "client", "transport", "cli", "__init__"):
        (root / f"{name}.py").touch()
    (root / place).write_text(source, "utf-8")
    return root


def test_test_modules_have_names_of_their_own() -> None:
    """pytest imports test modules by their base name, so two of one name cannot be collected together."""
    names = [
        path.name for path in Path(__file__).parent.rglob("*.py") if path.name not in {"conftest.py", "__init__.py"}
    ]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
