/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse MLA decode for the frame of mla.c: each query by itself, keys by its list of slots. */
#include "cpu.h"

#include "mla.h"

/* Entries of the list, whether valid or not. */
static int32_t list_length(const void *op, int32_t b, int32_t i)
{
	const struct kvk_mla_sparse_params *p = op;
	const int32_t length = p->topk_length ? p->topk_length[b] : p->topk;

	(void)i;
	if (length < 0)
		return 0;
	return length < p->topk ? length : p->topk;
}

static void gather(const void *op, int32_t b, int32_t i, int32_t first, int32_t count,
		   struct kvk_mla_keys *keys)
{
	const struct kvk_mla_sparse_params *p = op;
	const int64_t bytes = (int64_t)kvk_dtype_bytes(p->kv_dtype);
	const int64_t slots = (int64_t)p->pages * p->page_tokens;
	const int32_t *slot = p->indices + b * p->indices_stride_batch + i * p->indices_stride_query + first;

	keys->count = 0;
	for (int32_t n = 0; n < count; n++)
		if (slot[n] >= 0 && slot[n] < slots)
			keys->row[keys->count++] =
				(const char *)p->kv + (slot[n] / p->page_tokens * p->kv_stride_page +
						       slot[n] % p->page_tokens * p->kv_stride_token) *
							      bytes;
}

size_t kvk_mla_sparse_cpu_scratch(const struct kvk_mla_sparse_params *p)
{
	return kvk_mla_scratch(1, p->heads, p->threads);
}

void kvk_mla_sparse_cpu(const struct kvk_mla_sparse_params *p, enum kvk_level level)
{
	const struct kvk_mla_job job = KVK_MLA_JOB(p, .length = list_length, .gather = gather, .queries = 1);

	kvk_mla_run(&job, level);
}
