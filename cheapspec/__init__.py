"""Draft on your own machine, let the paid model verify, keep the target's own answer for less.

``from cheapspec import OpenAI`` replaces ``from openai import OpenAI``; ``import cheapspec as openai``
replaces ``import openai``: every other public name is openai's own, and so are the module-level settings
(``openai.api_key = …``) and the module-level client (``openai.chat.completions.create(…)``).
"""

from __future__ import annotations

from cheapspec import module
from cheapspec.client import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
from cheapspec.core.acceptance import (
    DraftToken,
    TargetLogprob,
    VerificationResult,
    verify_draft_tokens,
    verify_greedy,
    verify_stochastic,
)
from cheapspec.core.info import Info
from cheapspec.doors import info
from cheapspec.errors import CapabilityError, CheapspecError, LedgerError, PriceUnknownError, SettingsError
from cheapspec.settings import Speculation
from cheapspec.transport import AsyncTransport, Transport

__all__ = [
    "AsyncAzureOpenAI",
    "AsyncClient",
    "AsyncOpenAI",
    "AsyncTransport",
    "AzureOpenAI",
    "CapabilityError",
    "CheapspecError",
    "Client",
    "DraftToken",
    "Info",
    "LedgerError",
    "OpenAI",
    "PriceUnknownError",
    "SettingsError",
    "Speculation",
    "TargetLogprob",
    "Transport",
    "VerificationResult",
    "info",
    "verify_draft_tokens",
    "verify_greedy",
    "verify_stochastic",
]

__version__ = "0.1.0"

Client = OpenAI
AsyncClient = AsyncOpenAI

module.install(__name__)
