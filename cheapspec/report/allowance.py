"""What speculation may still lose: the accounts of the allowance as they are now, whatever requests a report is of."""

from __future__ import annotations

from decimal import Decimal

from cheapspec.core.records import AllowanceReader
from cheapspec.report.figures import Headroom

__all__ = ["headrooms"]

_ALL = "all"


def headrooms(ledger: object, seed: Decimal, session: str | None = None) -> tuple[Headroom, ...]:
    """That of all requests, then those that have least left; of a report about one ``session`` (its name) only the
    session's own besides. Empty where the ledger keeps no accounts, or nobody has speculated. ``seed``: dollars that
    each may lose besides what was saved.

    :raises LedgerError: the store cannot be read.
    """
    if not isinstance(ledger, AllowanceReader):
        return ()
    found = [Headroom(row.account, row.balance_usd, row.open_usd, seed) for row in ledger.account_rows()]
    if session is not None:
        found = [one for one in found if one.account in (_ALL, f"session:{session}")]
    return tuple(sorted(found, key=lambda one: (one.account != _ALL, one.usd, one.account)))
