/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What others make of the same work, where it is installed: MLA decode as a gather to f32 and two sgemm calls of
 * OpenBLAS, and the same in NumPy and in PyTorch. A peer that is not there has lines without a value.
 */
#ifndef KVPOOL_BENCH_PEERS_H
#define KVPOOL_BENCH_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "../ratio.h"

/* The lines of MLA over bf16 rows that `only` names (NULL: all). Lifts the pinning of the calling thread. */
void bench_peers(struct bench_lines *lines, const char *only, bool quick);

/* GFLOP/s, the median, of `heads` over `batch` requests of `context`; 0: no OpenBLAS. */
struct bench_peer_shape {
	int32_t heads, batch, context;
};
double bench_openblas_mla(const struct bench_peer_shape *shape, uint32_t threads, uint64_t budget_ns);

/* What the OpenBLAS form does beside its products, as built for one level. */
struct bench_peer_ops {
	void (*widen)(float *to, const uint16_t *from, int64_t count);
	/* Rows of scores become weights: exp(scale * (score - max)) / sum. */
	void (*softmax)(float *scores, int32_t rows, int32_t columns, float scale);
};

#endif
