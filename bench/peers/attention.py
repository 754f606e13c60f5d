#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""MLA decode in NumPy or PyTorch, as engines in Python do it: gather a request's pages, widen, two products, softmax.

attention.py numpy|torch HEADS BATCH CONTEXT SECONDS prints the median GFLOP/s."""
import sys
import time

import numpy as np

PAGE, WIDTH, LATENT, POOL_TOKENS, SCALE = 64, 576, 512, 131072, 0.0722

library, heads, batch, context, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
rng = np.random.default_rng(1)
codes = (rng.integers(0, 0x200, (POOL_TOKENS // PAGE, PAGE, WIDTH), dtype=np.uint16) | 0x3e00)
codes |= rng.integers(0, 2, codes.shape, dtype=np.uint16) << 15
table = rng.permutation(POOL_TOKENS // PAGE)[:batch * context // PAGE].reshape(batch, -1)
query = rng.standard_normal((batch, heads, WIDTH), dtype=np.float32)

if library == "torch":
    import torch
    pool = torch.from_numpy(codes.view(np.int16)).view(torch.bfloat16)
    rows, queries = torch.from_numpy(table), torch.from_numpy(query)

    def request(r):
        keys = pool[rows[r]].reshape(context, WIDTH).float()
        weights = torch.softmax(queries[r] @ keys.T * SCALE, dim=1)
        return weights @ keys[:, :LATENT]
else:
    def request(r):
        keys = (codes[table[r]].reshape(context, WIDTH).astype(np.uint32) << 16).view(np.float32)
        scores = query[r] @ keys.T
        scores *= np.float32(SCALE)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return scores @ keys[:, :LATENT]

times = []
end = time.perf_counter() + seconds
while not times or (time.perf_counter() < end and len(times) < 200):
    begin = time.perf_counter()
    for r in range(batch):
        request(r)
    times.append(time.perf_counter() - begin)
times.sort()
print("%.3f" % (2e-9 * batch * heads * context * (WIDTH + LATENT) / times[len(times) // 2]))
