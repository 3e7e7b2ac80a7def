"""What cheapspec costs besides money: ``python -m benchmarks`` measures it and writes ``docs/benchmarks.md``.

Rules
-----
* What is compared is measured in one run, turn by turn: machines differ, and so do minutes.
* Servers run in processes of their own, so that their work and their memory are not ours.
* A case checks that it measured what it is called: the decision and its reason are read from the replies.
* Figures go into the page by the command, never by hand, with the machine and the versions they hold for.
"""
