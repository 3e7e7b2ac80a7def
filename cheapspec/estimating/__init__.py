"""``cheapspec estimate``: what past requests would have cost, found out before anything changes in production.

* :mod:`~cheapspec.estimating.logs` reads requests and replies from files;
* :mod:`~cheapspec.estimating.along` runs the draft model along each recorded reply, on one's own machine;
* :mod:`~cheapspec.estimating.answers` compares final answers, for the rules that accept whole drafts;
* :mod:`~cheapspec.estimating.savings` says what each rule would have saved.

Nothing is sent to a target, and nothing of any text is kept.
"""
