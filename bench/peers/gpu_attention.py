#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dense MLA decode on a GPU by another library, timed as bench_gpu times: events, cold caches, random data.

gpu_attention.py torch|flash_mla|flashinfer BATCH CONTEXT HEADS... prints a line "HEADS MICROSECONDS" for each number of heads, the
median; nothing where the library or the GPU is not there."""
import statistics
import sys

import torch

PAGE, WIDTH, LATENT, SCALE, ROUNDS = 64, 576, 512, 0.0722, 30

library, batch, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if not torch.cuda.is_available():
    sys.exit(0)
device = torch.device("cuda")
pages = batch * context // PAGE
pool = torch.randn(pages, PAGE, 1, WIDTH, dtype=torch.bfloat16, device=device)
table = torch.randperm(pages, device=device).to(torch.int32).view(batch, -1)
lens = torch.full((batch,), context, dtype=torch.int32, device=device)
cold = torch.empty(4 * torch.cuda.get_device_properties(0).L2_cache_size // 4, dtype=torch.int32, device=device)


def by_torch(query):
    """As PyTorch's own attention takes it: a gather of the pages, then one call."""
    def run():
        keys = pool[table.long()].view(batch, 1, context, WIDTH)
        return torch.nn.functional.scaled_dot_product_attention(
            query.transpose(1, 2), keys, keys[..., :LATENT], scale=SCALE, enable_gqa=True)
    return run


def by_flash_mla(query):
    import flash_mla
    plan, splits = flash_mla.get_mla_metadata(lens, query.shape[2], 1)
    return lambda: flash_mla.flash_mla_with_kvcache(
        query, pool, table, lens, LATENT, plan, splits, softmax_scale=SCALE, causal=False)


def by_flashinfer(query):
    import flashinfer
    latent, rope = pool[:, :, 0, :LATENT].contiguous(), pool[:, :, 0, LATENT:].contiguous()
    wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(
        torch.empty(256 << 20, dtype=torch.int8, device=device), backend="auto")
    wrapper.plan(torch.arange(batch + 1, dtype=torch.int32, device=device),
                 torch.arange(batch + 1, dtype=torch.int32, device=device) * (context // PAGE),
                 table.flatten(), lens, query.shape[2], LATENT, WIDTH - LATENT, PAGE, False, SCALE,
                 torch.bfloat16, torch.bfloat16)
    nope, pe = query[:, 0, :, :LATENT].contiguous(), query[:, 0, :, LATENT:].contiguous()
    return lambda: wrapper.run(nope, pe, latent, rope)


def microseconds(run):
    times = []
    for _ in range(3):
        run()
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cold.sum()
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


make = {"torch": by_torch, "flash_mla": by_flash_mla, "flashinfer": by_flashinfer}[library]
for heads in map(int, sys.argv[4:]):
    print(heads, "%.3f" % microseconds(make(torch.randn(batch, 1, heads, WIDTH, dtype=torch.bfloat16, device=device))), flush=True)
