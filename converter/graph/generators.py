"""Random number generators that engines agree on: the exact numbers for given seeds."""

from __future__ import annotations

import numpy as np

from converter.graph.infer import Array

LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(key: int, counter: int, count: int) -> Array:
    """Return `count` uint32 numbers of Philox4x32-10, starting at block 0 of a 64-bit counter.

    Source: J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3.
    """
    block = np.arange(-(-count // 4), dtype=np.uint64)
    state = [
        block & LOW,
        block >> HALF,
        np.full_like(block, counter & 0xFFFFFFFF),
        np.full_like(block, (counter >> 32) & 0xFFFFFFFF),
    ]
    keys = [key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF]
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * state[0], np.uint64(0xCD9E8D57) * state[2]
        state = [
            second >> HALF ^ state[1] ^ np.uint64(keys[0]),
            second & LOW,
            first >> HALF ^ state[3] ^ np.uint64(keys[1]),
            first & LOW,
        ]
        keys = [(k + w) & 0xFFFFFFFF for k, w in zip(keys, (0x9E3779B9, 0xBB67AE85), strict=True)]
    return np.stack(state, 1).reshape(-1)[:count].astype(np.uint32)


def mersenne(seed: int, count: int) -> Array:
    """Return `count` uint32 numbers of the Mersenne twister MT19937 seeded with the low 32 bits of
    one number.
    """
    return np.random.RandomState(seed & 0xFFFFFFFF).randint(0, 1 << 32, count, np.uint32)
