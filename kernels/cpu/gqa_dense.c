/* SPDX-License-Identifier: Apache-2.0 */
/* Dense GQA decode: see gqa_call.c. */
#include "cpu.h"
#include "gqa_call.h"

static struct kvk_gqa_call call_of(const struct kvk_gqa_dense_params *p)
{
	return (struct kvk_gqa_call){KVK_GQA_CALL(p), .causal = (p->flags & KVK_CAUSAL) != 0};
}

size_t kvk_gqa_dense_cpu_scratch(const struct kvk_gqa_dense_params *shape)
{
	const struct kvk_gqa_call call = call_of(shape);

	return kvk_gqa_call_scratch(&call);
}

void kvk_gqa_dense_cpu(const struct kvk_gqa_dense_params *ready, enum kvk_level level)
{
	const struct kvk_gqa_call call = call_of(ready);

	kvk_gqa_call_run(&call, level);
}
