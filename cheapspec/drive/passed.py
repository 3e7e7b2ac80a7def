"""A request as it is passed on, and what was read of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import httpx2

from cheapspec.core.request import Request
from cheapspec.drive.settings import Settings
from cheapspec.drive.urls import api_base, tier_name

__all__ = ["Passed"]


@dataclass(frozen=True, slots=True)
class Passed:
    """A request to be passed through. ``request`` is the caller's own, unless it carried keys of ours.

    ``kind``: ``chat`` or ``completion``, empty for every other route. ``parsed``: what was read of it, ``None``
    for a bypass.
    """

    request_id: str
    settings: Settings
    decision: str
    reason: str
    request: httpx2.Request
    detail: str = ""
    kind: str = ""
    model: str = ""
    parsed: Request | None = None
    _base_url: list[str] = field(default_factory=list[str], compare=False, repr=False)

    def because(self, reason: str, detail: str = "", decision: str = "direct") -> Passed:
        """The same request with the reason found."""
        # Every request comes by here: dataclasses.replace takes four times as long.
        told = (self.request_id, self.settings, decision, reason, self.request, detail)
        return Passed(*told, self.kind, self.model, self.parsed, self._base_url)

    @property
    def base_url(self) -> str:
        """The endpoint's (:func:`cheapspec.drive.urls.api_base`), found once."""
        if not self._base_url:
            self._base_url.append(api_base(self.request.url))
        return self._base_url[0]

    @property
    def target(self) -> str:
        """``MODEL@BASE_URL``."""
        return f"{self.model}@{self.base_url}"

    @property
    def tier(self) -> str | None:
        """The service tier that was asked for."""
        if self.parsed is None:
            try:
                return tier_name(self.request.content)
            except httpx2.RequestNotRead:
                return None
        tier = self.parsed.body.get("service_tier")
        return tier if isinstance(tier, str) else None
