"""``cheapspec bench``: a prompt set through the target alone and through cheapspec, compared.

* :mod:`~cheapspec.bench.prompts` reads prompt sets, the shipped one among them;
* :mod:`~cheapspec.bench.pairs` makes the two arms, embedded or remote;
* :mod:`~cheapspec.bench.measure` asks both, :mod:`~cheapspec.bench.figures` adds up;
* :mod:`~cheapspec.bench.spoken`, :mod:`~cheapspec.bench.asking` and :mod:`~cheapspec.bench.foresight` find out what a
  clairvoyant would have paid.
"""

from cheapspec.bench.prompts import Prompt, chosen, load, shipped

__all__ = ["Prompt", "chosen", "load", "shipped"]
