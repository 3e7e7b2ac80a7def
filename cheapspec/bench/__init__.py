"""``cheapspec bench``: a prompt set through the target alone and through cheapspec, compared.

* :mod:`~cheapspec.bench.prompts` reads prompt sets, the shipped one among them.
"""
