/* SPDX-License-Identifier: Apache-2.0 */
/* MSA sparse decode: grouped attention over the keys of a selection, see gqa_call.c. Always causal. */
#include "cpu.h"
#include "gqa_call.h"

static struct kvk_gqa_call call_of(const struct kvk_msa_sparse_params *p)
{
	return (struct kvk_gqa_call){KVK_GQA_CALL(p),
				     .causal = 1,
				     .sparse = 1,
				     .block_tokens = p->block_tokens,
				     .topk = p->topk,
				     .selected = p->selected,
				     .selected_stride_head = p->selected_stride_head,
				     .selected_stride_row = p->selected_stride_row};
}

size_t kvk_msa_sparse_cpu_scratch(const struct kvk_msa_sparse_params *shape)
{
	const struct kvk_gqa_call call = call_of(shape);

	return kvk_gqa_call_scratch(&call);
}

void kvk_msa_sparse_cpu(const struct kvk_msa_sparse_params *ready, enum kvk_level level)
{
	const struct kvk_gqa_call call = call_of(ready);

	kvk_gqa_call_run(&call, level);
}
