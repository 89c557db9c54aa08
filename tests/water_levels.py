"""Water levels by sorting, in NumPy: what the tests of several methods compare with."""

import numpy as np


def by_sorting(c, volume, weight):
    """ALGORITHMS 3.1: the rows under water are the first k of the sorted ones."""
    order = np.argsort(c)
    low, w = c[order[0]], weight[order]
    above = c[order] - low
    mass, lifted = np.cumsum(w), np.cumsum(w * above)
    k = max(np.flatnonzero(mass * above - lifted < volume), default=0)
    return low + (volume + lifted[k]) / mass[k]


def by_sorting_two(c, y, volume, weight):
    """ALGORITHMS 3.3: one basin over the sums of the k-th lowest of both classes, with a piece for
    every change of weight.

    Returns level and bias, the middle of what the levels of the two basins allow.
    """
    sides = []
    for side in (y > 0, y < 0):
        order = np.argsort(c[side])
        sides.append((c[side][order], np.cumsum(weight[side][order])))
    (p, mp), (q, mq) = sides
    ends = np.unique(np.append(mp, mq))
    ends = ends[ends <= min(mp[-1], mq[-1])]
    # of the piece that ends there
    i, j = (np.searchsorted(m, ends - 1e-9 * ends[-1]) for m in (mp, mq))
    widths = np.diff(ends, prepend=0)
    both = p[i] + q[j]
    above = both - both[0]
    mass, lifted = np.cumsum(widths), np.cumsum(widths * above)
    k = max(np.flatnonzero(mass * above - lifted < volume), default=0)
    depth = (volume + lifted[k]) / mass[k] - above[k]
    rooms = []
    for ground, m, at in ((p, mp, i[k]), (q, mq, j[k])):
        after = np.searchsorted(m, ends[k] + 1e-9 * ends[-1])
        rooms.append(min(depth, ground[after] - ground[at]) if after < len(m) else depth)
    upper = p[i[k]] + (depth + rooms[0] - rooms[1]) / 2
    lower = both[k] + depth - upper
    return (upper + lower) / 2, (lower - upper) / 2
