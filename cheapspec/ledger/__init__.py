"""Where requests, calls and money are kept: in memory."""

from cheapspec.ledger.memory import CallRecord, MemoryLedger, RequestRecord, Totals

__all__ = ["CallRecord", "MemoryLedger", "RequestRecord", "Totals"]
