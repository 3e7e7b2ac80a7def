"""What the package shows is what it promises: ``__all__`` and the visible names are one list."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType

import pytest

import cheapspec

MODULES = sorted(
    info.name for info in pkgutil.walk_packages(cheapspec.__path__, "cheapspec.") if not info.name.endswith("__main__")
)
# fmt: off
PROMISED = [
    "Agree", "Answer", "Judge", "OkOrAnswer", "Patch", "Validator",
    "AsyncAzureOpenAI", "AsyncClient", "AsyncOpenAI", "AzureOpenAI", "Budget", "CapabilityError", "CheapspecError",
    "Client", "DraftToken", "Info", "LedgerError", "Lenient", "OpenAI", "Plan", "PriceUnknownError", "Report",
    "Session", "SettingsError", "Speculation", "TargetLogprob", "TextMatch", "VerificationResult", "info",
    "verify_draft_tokens", "verify_greedy", "verify_stochastic",
]
# fmt: on


def visible(module: ModuleType) -> list[str]:
    """Public names of a module that are not submodules of it and not machinery."""
    hidden = {"annotations", "TYPE_CHECKING"}
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in hidden and not isinstance(value, ModuleType)
    ]


def in_order(names: Iterable[str]) -> list[str]:
    """The order that ruff's RUF022 keeps: CONSTANTS, then Classes, then functions."""
    return sorted(names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))


def test_all_is_sorted_and_is_what_is_visible() -> None:
    """Nobody finds a name by completion that is not promised, and each promise is there."""
    promised = [name for name in cheapspec.__all__ if name != "__version__"]
    assert promised == in_order(promised)
    assert promised == in_order(visible(cheapspec))


@pytest.mark.parametrize("name", PROMISED)
def test_the_promised_names_can_be_imported(name: str) -> None:
    """The names that users rely on are there."""
    assert name in cheapspec.__all__
    assert getattr(cheapspec, name) is not None


@pytest.mark.parametrize("name", MODULES)
def test_the_all_of_a_module_is_real(name: str) -> None:
    """Every module says what it exports, without repeats, and has each of it."""
    module = importlib.import_module(name)
    exported = list(getattr(module, "__all__", ()))
    if vars(module).get("__file__") and not name.endswith(("backends", "core", "drive", "estimating", "testing")):
        assert exported, f"{name} has no __all__"
    assert len(exported) == len(set(exported))
    assert [entry for entry in exported if not hasattr(module, entry)] == []
