/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of bench_kernels. A case opens its arrays, then runs over one of several sets of pages that together are
 * larger than the caches, as the layers of a decode step are: no run finds its pages where the last one left them.
 */
#ifndef KVPOOL_BENCH_KERNEL_CASE_H
#define KVPOOL_BENCH_KERNEL_CASE_H

#include <stddef.h>
#include <stdint.h>

#include <kvpool/kernels.h>

#include "limits.h"

enum bench_limit_kind { BENCH_FMA, BENCH_READ, BENCH_COPY };

struct bench_case;

struct bench_kernel {
	void (*open)(struct bench_case *self);
	/* The kernel over page set `set`; its result. */
	int (*run)(const struct bench_case *self, uint32_t set, const struct kvk_threads *threads);
	/* Its scratch with these threads; NULL: it has none. */
	int (*scratch)(const struct bench_case *self, const struct kvk_threads *threads, size_t *bytes);
};
extern const struct bench_kernel bench_mla, bench_gqa, bench_sparse, bench_sparse_read, bench_scores,
	bench_mla_write, bench_kv_write;

struct bench_case {
	const char *name;
	const struct bench_kernel *kernel;
	enum bench_limit_kind kind;
	double target; /* the part of the limit to reach; 0: none */
	/* What open() is to make. */
	int32_t heads, batch, context;
	uint32_t form; /* a dtype, or enum bench_layout */
	/* What it made. */
	double work; /* of a run: flop, or bytes */
	uint32_t sets;
	struct bench_pages pages; /* BENCH_READ: of set 0; the other sets' ids lie behind its own */
	char *copy_to;            /* BENCH_COPY */
	const char *copy_from;
	size_t copy_bytes;
	union {
		struct kvk_mla_dense_params mla;
		struct kvk_gqa_dense_params gqa;
		struct kvk_msa_scores_params scores;
		struct kvk_msa_sparse_params sparse;
		struct kvk_mla_write_params mla_write;
		struct kvk_kv_write_params kv_write;
	} params;
	void *scratch;
	size_t scratch_bytes;
};

enum bench_layout { BENCH_NHD, BENCH_HND };

extern struct bench_case bench_cases[];
extern const size_t bench_case_count;

/* Pools of 131,072 tokens, made when first asked for. */
#define BENCH_POOL_TOKENS 131072
void *bench_mla_pool(uint32_t dtype);
struct bench_kv {
	void *k, *v;
};
struct bench_kv bench_kv_pool(void);

#define BENCH_KV_HEADS 4
#define BENCH_HEAD_DIM 128
#define BENCH_KV_PAGE 128 /* tokens */
#define BENCH_MLA_PAGE 64

#endif
