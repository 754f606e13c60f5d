#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The host preparation of a decode step in NumPy, as engines in Python do it: 128 sequences of 128 blocks of 64 tokens.

Prints "incremental <us>" and "rebuild <us>", medians. Everything is vectorised that can be; buffers are reused."""
import time

import numpy as np

SEQS, BLOCKS, TOKENS, WIDTH = 128, 128, 64, 132

rng = np.random.default_rng(1)
rows = np.zeros((SEQS, WIDTH), dtype=np.int32)
rows[:, :BLOCKS] = rng.integers(2, 40000, (SEQS, BLOCKS), dtype=np.int32)
lens = (BLOCKS - 1) * TOKENS + rng.integers(0, TOKENS, SEQS)
table = np.zeros((SEQS, WIDTH), dtype=np.int32)
kv_lens = np.zeros(SEQS, dtype=np.int32)
cu_q = np.arange(SEQS + 1, dtype=np.int32)
cu_kv = np.zeros(SEQS + 1, dtype=np.int32)
indptr = np.zeros(SEQS + 1, dtype=np.int32)
index = np.arange(SEQS)
columns = np.arange(WIDTH, dtype=np.int32)


def step(positions):
    """One token more in each sequence; the table is kept, its new entries are written."""
    blocks = positions // TOKENS
    table[index, blocks] = rows[index, blocks]
    kv_lens[:] = positions + 1
    np.cumsum(kv_lens, out=cu_kv[1:])
    slots = table[index, blocks] * TOKENS + positions % TOKENS
    pages = blocks + 1
    np.cumsum(pages, out=indptr[1:])
    page_list = table[columns[None, :] < pages[:, None]]
    n_valid = (positions + TOKENS) // TOKENS
    return slots, page_list, n_valid, positions


def rebuild():
    """The whole block table, a copy a row, as rows lie apart."""
    table.fill(0)
    for i in range(SEQS):
        table[i, :BLOCKS] = rows[i, :BLOCKS]


def median_us(call, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
    times.sort()
    return times[len(times) // 2] / 1000


rebuild()
state = {"positions": lens.copy()}


def next_step():
    step(state["positions"])
    state["positions"] = np.where(state["positions"] + 1 < BLOCKS * TOKENS, state["positions"] + 1,
                                  (BLOCKS - 1) * TOKENS)


print("incremental %.3f" % median_us(next_step, 500))
print("rebuild %.3f" % median_us(rebuild, 500))
