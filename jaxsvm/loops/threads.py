"""Which programs may run at the same time."""

from __future__ import annotations

import re
from typing import Any


def may_overlap(lowered: Any) -> bool:
    """Whether several threads may run a program at the same time.

    XLA spreads a batch of factorisations over its threads, and waits for it on one of them. Where
    each thread waits so, none is left to work: two programs may then wait for each other without
    end.

    Args:
        lowered: from the `lower` of a function under `jax.jit`.
    """
    calls = re.findall(r"@lapack_(\w+)", lowered.as_text())
    return all("trsm" in call for call in calls)  # triangular systems are solved by one thread
