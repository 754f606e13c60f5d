/* SPDX-License-Identifier: Apache-2.0 */
/* Dense MLA decode for the frame of mla.c: keys by block table, all queries of a sequence together. */
#include "cpu.h"

#include "../internal.h"
#include "mla.h"

static int32_t visible(const void *op, int32_t b, int32_t i)
{
	const struct kvk_mla_dense_params *p = op;

	return kvk_visible(p->lens[b], p->s_q, i, (p->flags & KVK_CAUSAL) != 0);
}

static void gather(const void *op, int32_t b, int32_t i, int32_t first, int32_t count,
		   struct kvk_mla_keys *keys)
{
	const struct kvk_mla_dense_params *p = op;
	const int64_t bytes = (int64_t)kvk_dtype_bytes(p->kv_dtype);
	const int32_t *page = p->block_table + b * p->table_stride + first / p->page_tokens;
	int32_t token = first % p->page_tokens;

	(void)i;
	for (int32_t n = 0; n < count; n++) {
		if (token == p->page_tokens) {
			token = 0;
			page++;
		}
		keys->row[n] = (const char *)p->kv +
			       (*page * p->kv_stride_page + token * p->kv_stride_token) * bytes;
		token++;
	}
	keys->count = count;
}

size_t kvk_mla_dense_cpu_scratch(const struct kvk_mla_dense_params *p)
{
	return kvk_mla_scratch(p->s_q, p->heads, p->threads);
}

void kvk_mla_dense_cpu(const struct kvk_mla_dense_params *p, enum kvk_level level)
{
	const struct kvk_mla_job job = KVK_MLA_JOB(p, .length = visible, .gather = gather, .queries = p->s_q);

	kvk_mla_run(&job, level);
}
