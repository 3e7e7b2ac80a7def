"""Settings: one frozen model, read from keyword, environment, ``cheapspec.toml`` and defaults."""

from cheapspec.settings.drafts import DraftSpec, parse_draft, parse_drafts
from cheapspec.settings.model import Speculation
from cheapspec.settings.pricelist import parse_prices, read_prices
from cheapspec.settings.sources import disabled

__all__ = ["DraftSpec", "Speculation", "disabled", "parse_draft", "parse_drafts", "parse_prices", "read_prices"]
