#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The host preparation of a decode step as engines in Python do it, timed on request.

usage: host_prep_numpy.py TABLES

Reads a task a line from stdin and answers "<median us> <checksum>", or "none" without NumPy where the task needs it:

  incremental      one token more in each of 128 sequences of 128 blocks of 64 tokens, NumPy
  rebuild          their whole block table, NumPy
  block_ids        get_block_ids_per_seq of TABLES, NumPy, vectorised, no temporary array but what it must have
  block_ids_lists  the same by lists, a block at a time
  slot_mapping     slots of the query tokens of TABLES, NumPy, vectorised

TABLES holds int32 numbers in the machine's order: seqs, blocks, scale, divisor, layers, rows [seqs][blocks], row of each seq
[seqs]; then requests, width, page, qo_lens [requests], offsets [requests], ids [requests][width]. The checksum is the sum of result
* (its index + 1) modulo 2^64: who asks can see that both computed the same."""
import array
import sys
import time

try:
    import numpy as np
except ImportError:
    np = None

BAD = -1
SEQS, BLOCKS, TOKENS, WIDTH = 128, 128, 64, 132
BUDGET_NS = 20_000_000


def read_tables(path):
    with open(path, "rb") as file:
        numbers = array.array("i", file.read())
    at = 0

    def take(count):
        nonlocal at
        at += count
        return numbers[at - count:at]

    ids = dict(zip(("seqs", "blocks", "scale", "divisor", "layers"), take(5)))
    ids["rows"] = take(ids["seqs"] * ids["blocks"])
    ids["row_of"] = take(ids["seqs"])
    slots = dict(zip(("requests", "width", "page"), take(3)))
    slots["qo"] = take(slots["requests"])
    slots["offset"] = take(slots["requests"])
    slots["ids"] = take(slots["requests"] * slots["width"])
    return ids, slots


def block_ids_lists(ids):
    """What the engine does: lists of page indices, then a padded list of lists of ids."""
    rows = [ids["rows"][i * ids["blocks"]:(i + 1) * ids["blocks"]] for i in ids["row_of"]]
    counts = [ids["blocks"]] * ids["seqs"]
    scale, divisor, layers = ids["scale"], ids["divisor"], ids["layers"]

    def call():
        indices = []
        for row, count in zip(rows, counts):
            indices.append([b if b == BAD else b * scale // divisor for b in row[:count]])
        width = max(counts)
        result = []
        for line in indices:
            padded = [0 if index == BAD else index // layers for index in line]
            padded.extend([0] * (width - len(line)))
            result.append(padded)
        return result

    return call, lambda result: [entry for line in result for entry in line]


def block_ids(ids):
    shape = (ids["seqs"], ids["blocks"])
    pool = np.array(ids["rows"], dtype=np.int32).reshape(shape)
    index = np.array(ids["row_of"], dtype=np.intp)
    counts = np.full(ids["seqs"], ids["blocks"])
    columns = np.arange(ids["blocks"])
    work = np.empty(shape, dtype=np.int32)
    bad = np.empty(shape, dtype=bool)
    divisor = np.int32(ids["divisor"] * ids["layers"])
    scale = np.int32(ids["scale"])

    def call():
        width = int(counts.max())
        np.take(pool, index, axis=0, out=work)
        np.less(work, 0, out=bad)
        if int(counts.min()) < width:
            np.logical_or(bad, columns >= counts[:, None], out=bad)
        np.multiply(work, scale, out=work)
        np.floor_divide(work, divisor, out=work)
        np.copyto(work, 0, where=bad)
        return work

    return call, lambda result: result.ravel().tolist()


def slot_mapping(slots):
    ids = np.array(slots["ids"], dtype=np.int32).reshape(slots["requests"], slots["width"])
    qo = np.array(slots["qo"], dtype=np.int32)
    offset = np.array(slots["offset"], dtype=np.int32)
    page, requests = slots["page"], np.arange(slots["requests"])
    last = max(slots["width"] * page - 1, 0)

    def call():
        ends = np.cumsum(qo, dtype=np.int32)
        row = np.repeat(requests, qo)
        position = np.arange(ends[-1], dtype=np.int32) + np.repeat(offset - ends + qo, qo)
        np.clip(position, 0, last, out=position)
        block, within = np.divmod(position, np.int32(page))
        return ids[row, block] * np.int32(page) + within

    return call, lambda result: result.tolist()


def steps():
    """One token more in each sequence; the table is kept, its new entries are written."""
    rng = np.random.default_rng(1)
    rows = np.zeros((SEQS, WIDTH), dtype=np.int32)
    rows[:, :BLOCKS] = rng.integers(2, 40000, (SEQS, BLOCKS), dtype=np.int32)
    lens = (BLOCKS - 1) * TOKENS + rng.integers(0, TOKENS, SEQS)
    table = np.zeros((SEQS, WIDTH), dtype=np.int32)
    kv_lens = np.zeros(SEQS, dtype=np.int32)
    cu_kv = np.zeros(SEQS + 1, dtype=np.int32)
    indptr = np.zeros(SEQS + 1, dtype=np.int32)
    index = np.arange(SEQS)
    columns = np.arange(WIDTH, dtype=np.int32)
    state = {"positions": lens.copy()}

    def rebuild():
        """The whole block table, a copy a row, as rows lie apart."""
        table.fill(0)
        for i in range(SEQS):
            table[i, :BLOCKS] = rows[i, :BLOCKS]

    def step(positions):
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

    def incremental():
        step(state["positions"])
        state["positions"] = np.where(state["positions"] + 1 < BLOCKS * TOKENS, state["positions"] + 1,
                                      (BLOCKS - 1) * TOKENS)

    rebuild()
    return incremental, rebuild


def median_us(call):
    times = []
    begin = end = time.perf_counter_ns()
    while len(times) < 5 or (end - begin < BUDGET_NS and len(times) < 500):
        start = time.perf_counter_ns()
        call()
        end = time.perf_counter_ns()
        times.append(end - start)
    times.sort()
    return times[len(times) // 2] / 1000


def checksum(numbers):
    return sum(number * (i + 1) for i, number in enumerate(numbers)) % 2**64


def main():
    ids, slots = read_tables(sys.argv[1])
    nothing = lambda result: []
    tasks = {"block_ids_lists": block_ids_lists(ids)}
    if np is not None:
        incremental, rebuild = steps()
        tasks.update({"block_ids": block_ids(ids), "slot_mapping": slot_mapping(slots),
                      "incremental": (incremental, nothing), "rebuild": (rebuild, nothing)})
    sums = {name: checksum(numbers(call())) for name, (call, numbers) in tasks.items()}
    for line in sys.stdin:
        name = line.strip()
        if name in tasks:
            print("%.3f %d" % (median_us(tasks[name][0]), sums[name]), flush=True)
        else:
            print("none", flush=True)


main()
