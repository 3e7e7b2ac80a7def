"""The ledger's tables, as queries see them.

Rules
-----
* Times are seconds since the epoch, UTC. Money is integer nano-dollars (:mod:`cheapspec.ledger.money`);
  ``NULL`` is unknown, never 0. Token counts are the target's tokens.
* A row has an ``owner``, the process that wrote it, and a *lease* while it is open. A live owner renews its
  leases; whoever finds an expired one settles the row (:mod:`cheapspec.ledger.leases`).
* What a version of the tables looked like is told by :mod:`cheapspec.ledger.migrations`; a test compares the
  newest with this module. Ids are text that the writer chose, so that a row can be written twice without harm.
* Text of prompts and replies stays ``NULL`` unless the ledger was told ``store_text``.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, MetaData, Table, Text, text

__all__ = [
    "allowances",
    "budgets",
    "calls",
    "capabilities",
    "certificates",
    "estimates",
    "metadata",
    "requests",
    "reservations",
    "risks",
    "schema_version",
    "sessions",
    "shadows",
    "traces",
]

metadata = MetaData()

schema_version = Table(
    "schema_version",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("applied_at", Double, nullable=False),
)

requests = Table(
    "requests",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("at", Double, nullable=False),
    Column("closed_at", Double),
    Column("owner", Text, nullable=False),
    Column("lease_expires", Double, nullable=False),
    Column("model", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("session", Text),
    Column("session_id", Text),
    Column("workload", Text),
    Column("decision", Text),
    Column("reason", Text),
    Column("rule", Text),
    Column("drafter", Text),
    Column("rounds", Integer),
    Column("ties", Integer),
    Column("drafted_tokens", Integer),
    Column("accepted_tokens", Integer),
    Column("corrected_tokens", Integer),
    Column("handoff_tokens", Integer),
    Column("unverified_tokens", Integer),
    Column("target_calls", Integer),
    Column("input_tokens", Integer),
    Column("cached_input_tokens", Integer),
    Column("output_tokens", Integer),
    Column("paid_nano", BigInteger),
    Column("baseline_nano", BigInteger),
    Column("baseline", Text),
    Column("priced_by", Text),
    Column("simulated", Boolean),
    Column("seconds_draft", Double),
    Column("seconds_verify", Double),
    Column("seconds_handoff", Double),
    Column("seconds_total", Double),
    Column("prompt_text", Text),
    Column("reply_text", Text),
    Column("fixed_draft_tokens", Integer),
    Column("local_nano", BigInteger),
    Column("lossy", Boolean),
    Column("lenient_tokens", Integer),
    Column("target", Text),
    Column("prompt_tokens", Integer),
    Column("reply_tokens", Integer),
    Column("cached_prompt_tokens", Integer),
    Column("forecast_nano", BigInteger),
    Index("requests_at", "at"),
    Index(
        "requests_session",
        "session_id",
        sqlite_where=text("session_id IS NOT NULL"),
        postgresql_where=text("session_id IS NOT NULL"),
    ),
    Index("requests_open", "owner", sqlite_where=text("closed_at IS NULL"), postgresql_where=text("closed_at IS NULL")),
)
"""``target``: ``MODEL@BASE_URL``. ``fixed_draft_tokens``: the caller's ``draft_tokens=N``, ``NULL`` where the planner
chose. ``lossy``: tokens were accepted on a rule under which they need not be the target's, ``lenient_tokens``: how many
of them the target would not have written. ``local_nano``: the price of local drafting, a part of ``paid_nano``.
``forecast_nano``: the gain that the planner expected, negative for a loss. ``prompt_tokens``, ``cached_prompt_tokens``
and ``reply_tokens``: what the direct call alone would have been billed, the counts under the baseline (``input_tokens``
and so on are those that all calls were billed).
"""

calls = Table(
    "calls",
    metadata,
    Column("call_id", Text, primary_key=True),
    Column("request_id", Text, nullable=False),
    Column("side", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("billed", Boolean, nullable=False),
    Column("status", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("closed_at", Double),
    Column("owner", Text, nullable=False),
    Column("lease_expires", Double, nullable=False),
    Column("worst_nano", BigInteger),
    Column("input_tokens", Integer),
    Column("cached_tokens", Integer),
    Column("cache_write_tokens", Integer),
    Column("output_tokens", Integer),
    Column("reasoning_tokens", Integer),
    Column("estimated", Boolean),
    Column("service_tier", Text),
    Column("cost_nano", BigInteger),
    Column("budget_nano", BigInteger),
    Column("seconds", Double),
    Column("http_status", Integer),
    Column("asked_tier", Text),
    Column("price_flags", Text),
    Index("calls_request", "request_id"),
    Index("calls_open", "owner", sqlite_where=text("status = 'open'"), postgresql_where=text("status = 'open'")),
)
"""``cost_nano``: what the call cost, of an ``expired`` one its worst case. ``budget_nano``: what budgets count when
that is more (the dearer of two service tiers); ``worst_nano``: the most that it can cost, said before it went out.
``service_tier``: the one that served, ``asked_tier``: the one that was asked for; ``price_flags``: ``tier_differs``,
``tier_unpriced``, or both (words in a row), where that bears on the price.
"""

traces = Table(
    "traces",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("drafter", Text),
    Column("position", Integer, nullable=False),
    Column("logprobs", Text, nullable=False),
    Column("agreed", Text, nullable=False),
    Column("ended", Boolean),
    Column("model", Text),
)
"""One round along the final text: ``position`` of its first token there, the draft model's log-probabilities (a JSON
list, ``null`` unknown), and for each token ``1`` where the target agreed, else ``0``. ``ended``: the target ended its
turn after this round (``NULL`` unknown); ``model``: the target, as it names itself."""

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("parent_id", Text),
    Column("at", Double, nullable=False),
    Column("closed_at", Double),
    Column("owner", Text, nullable=False),
    Index("sessions_name", "name"),
)

budgets = Table(
    "budgets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("usd_nano", BigInteger, nullable=False),
    Column("reserved_nano", BigInteger, nullable=False),
    Column("spent_nano", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
)
"""One row a budget and period (``2026-11-29``, ``2026-11``, or empty for ever): a new period is a new row."""

reservations = Table(
    "reservations",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("status", Text, nullable=False),
    Column("amount_nano", BigInteger, nullable=False),
    Column("charged_nano", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("closed_at", Double),
    Column("owner", Text, nullable=False),
    Column("lease_expires", Double, nullable=False),
    Index("reservations_held", "owner", sqlite_where=text("status = 'held'"), postgresql_where=text("status = 'held'")),
)
"""``status``: held, settled or expired. ``charged_nano``: what its budget counts for the request once it is over."""

estimates = Table(
    "estimates",
    metadata,
    Column("target", Text, primary_key=True),
    Column("workload", Text, primary_key=True),
    Column("drafter", Text, primary_key=True),
    Column("bucket", Text, primary_key=True),
    Column("trials", Double, nullable=False),
    Column("hits", Double, nullable=False),
    Column("predicted", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
)
"""Decayed counts of acceptance, additive: processes add theirs to the same row. ``predicted``: the sum of the
probabilities that were predicted for these trials, so that a report can hold the prediction against the hits.
"""

allowances = Table(
    "allowances",
    metadata,
    Column("account", Text, primary_key=True),
    Column("balance_nano", BigInteger, nullable=False),
    Column("open_nano", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
)
"""An allowance that processes share: ``balance_nano`` is what speculation has saved so far and may lose again,
``open_nano`` the sum of the account's :data:`risks`."""

risks = Table(
    "risks",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("account", Text, primary_key=True),
    Column("amount_nano", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("lease_expires", Double, nullable=False),
    Column("at", Double, nullable=False),
    Index("risks_owner", "owner"),
)
"""The open worst cases of an allowance: what requests under way may still lose at most. A row goes when its request
is settled, or when its lease expires."""

capabilities = Table(
    "capabilities",
    metadata,
    Column("base_url", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("backend", Text, primary_key=True),
    Column("can_score", Boolean),
    Column("can_force", Boolean),
    Column("can_continue", Boolean),
    Column("can_judge", Boolean),
    Column("reports_cached_tokens", Boolean),
    Column("qs", Double),
    Column("qh", Double),
    Column("evidence", Text, nullable=False),
    Column("probed_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
)

shadows = Table(
    "shadows",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("rule", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("at", Double, nullable=False),
    Column("workload", Text, nullable=False),
    Column("prompt_version", Text, nullable=False),
    Column("draft", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("fingerprint", Text),
    Column("outcome", Text, nullable=False),
    Column("score", Double),
    Column("comparison", Text, nullable=False),
    Column("equal", Boolean),
    Column("bad", Boolean),
    Column("chance", Double),
    Column("why", Text, nullable=False),
    Column("draft_text", Text),
    Index("shadows_workload", "workload", "target", "at"),
)
"""What a rule said about a draft, and what the target replied (:class:`cheapspec.core.shadows.ShadowRow`). ``kind``:
``shadow`` (the target answered the caller) or ``audit`` (the draft did, and the target was asked besides). Text only
where the ledger keeps it."""

certificates = Table(
    "certificates",
    metadata,
    Column("certificate_id", Text, primary_key=True),
    Column("at", Double, nullable=False),
    Column("workload", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("prompt_version", Text, nullable=False),
    Column("draft", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("fingerprint", Text),
    Column("comparison", Text, nullable=False),
    Column("threshold", Double),
    Column("n", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("accepted", Integer, nullable=False),
    Column("loss", Double, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("seen_until", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("chance", Double),
    Column("revoked_at", Double),
    Column("revoked_why", Text),
)
"""What was promised of a lossy rule, and the batch of :data:`shadows` that it rests on; without a ``threshold``: a look
at a batch that bore no promise (:class:`cheapspec.core.shadows.CertificateRow`)."""
