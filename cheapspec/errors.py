"""The exceptions that cheapspec itself raises.

::

    CheapspecError
     ├── SettingsError        a keyword, environment variable or file says something unusable
     ├── CapabilityError      a rule was asked for that this endpoint cannot serve
     ├── LedgerError          the ledger's store is unusable
     └── PriceUnknownError    a price is needed and nobody knows it

They are raised by construction, settings and commands. On the path of a request only
``openai.*`` errors reach the caller, so that an ``except openai.APIError`` written for the plain
client goes on working. All of them survive pickling (a worker pool re-raises them whole).
"""

from __future__ import annotations

__all__ = ["CapabilityError", "CheapspecError", "LedgerError", "PriceUnknownError", "SettingsError"]


class CheapspecError(Exception):
    """Base of every error that is cheapspec's own. ``str(error)`` says what is wrong and what to do."""


class SettingsError(CheapspecError):
    """A setting is unusable. The message names the key, where it came from, and the nearest known key."""


class CapabilityError(CheapspecError):
    """The endpoint cannot serve what was asked of it (for example: it does not score given text)."""


class LedgerError(CheapspecError):
    """The ledger's store cannot be opened or written."""


class PriceUnknownError(CheapspecError):
    """A command needs a price that neither the user's table nor the price library has."""
