"""Hostile input of every kind, judged by independent oracles; see `python -m benchmarks.robustness --help`.

A case is a part and a seed. The seed decides the input, and the case has one verdict:

    right      accepted, and the answer is that of the oracle
    warned     the same, with a warning that says what to mind
    refused    a ValueError, TypeError or OSError of this package whose message is one sentence
    WRONG      accepted, and the answer is not that of the oracle
    FOREIGN    any other exception, or one that was raised in another package
    DIFFERENT  a damaged file that was loaded as something else than was saved
    BROKEN     the campaign itself failed
"""
