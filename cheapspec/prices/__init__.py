"""What a model costs."""

from cheapspec.prices.book import PriceBook, Quote, spellings

__all__ = ["PriceBook", "Quote", "spellings"]
