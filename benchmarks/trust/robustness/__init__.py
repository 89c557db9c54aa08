"""Hostile input of every kind, judged by independent oracles; see `python -m benchmarks.trust.robustness --help`.

A case is a part and a seed. The seed decides the input, and the case has one verdict:

    right      accepted, and the answer is that of an independent oracle
    warned     the same, with a warning that says what to mind
    unjudged   accepted, and no independent answer was at hand
    refused    a ValueError, TypeError or OSError of this package whose message is one sentence, and the
               valid twin of the call, the same with its hostile piece mended, is taken
    WRONG      accepted, and the answer is not that of the oracle; or refused with a twin that is refused, too
    FOREIGN    any other exception, or one that was raised in another package
    DIFFERENT  a damaged file that was loaded as something else than was saved
    BROKEN     the campaign itself failed
"""
