/* SPDX-License-Identifier: Apache-2.0 */
#include "versions.h"

#include "cpu/cpu.h"
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES KVK_SCRATCH_ALIGN

static void *open_scratch(size_t bytes)
{
	const size_t whole = (bytes + KVK_SCRATCH_ALIGN - 1) / KVK_SCRATCH_ALIGN * KVK_SCRATCH_ALIGN;
	void *scratch = aligned_alloc(KVK_SCRATCH_ALIGN, whole + GUARD_BYTES);

	if (!scratch)
		abort();
	return memset(scratch, 0xff, whole + GUARD_BYTES);
}

/* Frees it; the bytes behind it must be as they were. */
static int close_scratch(unsigned char *scratch, size_t bytes)
{
	int ret = 0;

	for (size_t i = 0; i < GUARD_BYTES; i++)
		if (scratch[bytes + i] != 0xff)
			ret = -EFAULT;
	free(scratch);
	return ret;
}

/* run_<op>() */
#define RUN(op)                                                                                              \
	int run_##op(const struct kvk_##op##_params *params)                                                 \
	{                                                                                                    \
		struct kvk_##op##_params p = *params;                                                        \
		size_t bytes;                                                                                \
		int ret = kvk_##op##_scratch(&p, &bytes);                                                    \
		int broken;                                                                                  \
                                                                                                             \
		if (ret)                                                                                     \
			return ret;                                                                          \
		p.scratch_bytes = bytes;                                                                     \
		p.scratch = open_scratch(bytes);                                                             \
		ret = kvk_##op(&p);                                                                          \
		broken = close_scratch(p.scratch, bytes);                                                    \
		return ret ? ret : broken;                                                                   \
	}

/* <op>_<name>(): the operation at one level. */
#define AT_LEVEL(op, name, level)                                                                            \
	static int op##_##name(const struct kvk_##op##_params *params)                                       \
	{                                                                                                    \
		struct kvk_##op##_params ready;                                                              \
		int ret = kvk_prepare_##op(params, &ready);                                                  \
                                                                                                             \
		if (ret <= 0)                                                                                \
			return ret;                                                                          \
		ready.scratch_bytes = kvk_##op##_cpu_scratch(&ready);                                        \
		ready.scratch = open_scratch(ready.scratch_bytes);                                           \
		kvk_##op##_cpu(&ready, level);                                                               \
		return close_scratch(ready.scratch, ready.scratch_bytes);                                    \
	}

#define AT_EVERY_LEVEL(op)                                                                                   \
	AT_LEVEL(op, scalar, KVK_LEVEL_SCALAR)                                                               \
	AT_LEVEL(op, avx2, KVK_LEVEL_AVX2)                                                                   \
	AT_LEVEL(op, avx512, KVK_LEVEL_AVX512)                                                               \
	AT_LEVEL(op, avx512_bf16, KVK_LEVEL_AVX512_BF16)                                                     \
	AT_LEVEL(op, neon, KVK_LEVEL_NEON)

/* The same of an operation without scratch. */
#define WRITE_AT_LEVEL(op, name, level)                                                                      \
	static int op##_##name(const struct kvk_##op##_params *params)                                       \
	{                                                                                                    \
		struct kvk_##op##_params ready;                                                              \
		int ret = kvk_prepare_##op(params, &ready);                                                  \
                                                                                                             \
		if (ret > 0)                                                                                 \
			kvk_##op##_cpu(&ready, level);                                                       \
		return ret > 0 ? 0 : ret;                                                                    \
	}

#define WRITE_AT_EVERY_LEVEL(op)                                                                             \
	WRITE_AT_LEVEL(op, scalar, KVK_LEVEL_SCALAR)                                                         \
	WRITE_AT_LEVEL(op, avx2, KVK_LEVEL_AVX2)                                                             \
	WRITE_AT_LEVEL(op, avx512, KVK_LEVEL_AVX512)                                                         \
	WRITE_AT_LEVEL(op, avx512_bf16, KVK_LEVEL_AVX512_BF16)                                               \
	WRITE_AT_LEVEL(op, neon, KVK_LEVEL_NEON)

RUN(mla_dense)
RUN(gqa_dense)
RUN(mla_sparse)
RUN(msa_scores)
RUN(msa_sparse)

AT_EVERY_LEVEL(mla_dense)
AT_EVERY_LEVEL(mla_sparse)
AT_EVERY_LEVEL(gqa_dense)
AT_EVERY_LEVEL(msa_scores)
AT_EVERY_LEVEL(msa_sparse)

WRITE_AT_EVERY_LEVEL(mla_write)
WRITE_AT_EVERY_LEVEL(kv_write)

/* The operations that have a version at each level. */
#define LEVEL(name_)                                                                                         \
	{                                                                                                    \
		.name = #name_, .row_limit = 1e-4, .mla_dense = mla_dense_##name_,                           \
		.mla_sparse = mla_sparse_##name_, .gqa_dense = gqa_dense_##name_,                            \
		.msa_scores = msa_scores_##name_, .msa_sparse = msa_sparse_##name_,                          \
		.mla_write = mla_write_##name_, .kv_write = kv_write_##name_                                 \
	}

static const struct version levels[KVK_LEVELS] = {
	[KVK_LEVEL_SCALAR] = LEVEL(scalar), [KVK_LEVEL_AVX2] = LEVEL(avx2),
	[KVK_LEVEL_AVX512] = LEVEL(avx512), [KVK_LEVEL_AVX512_BF16] = LEVEL(avx512_bf16),
	[KVK_LEVEL_NEON] = LEVEL(neon),
};

struct version versions[2 + KVK_LEVELS] = {
	{.name = "reference",
	 .row_limit = 1e-6,
	 .mla_dense = kvk_mla_dense_ref,
	 .gqa_dense = kvk_gqa_dense_ref,
	 .mla_sparse = kvk_mla_sparse_ref,
	 .msa_scores = kvk_msa_scores_ref,
	 .msa_select = kvk_msa_select_ref,
	 .msa_sparse = kvk_msa_sparse_ref,
	 .mla_write = kvk_mla_write_ref,
	 .kv_write = kvk_kv_write_ref},
	{.name = "dispatched",
	 .row_limit = 1e-4,
	 .mla_dense = run_mla_dense,
	 .gqa_dense = run_gqa_dense,
	 .mla_sparse = run_mla_sparse,
	 .msa_scores = run_msa_scores,
	 .msa_select = kvk_msa_select,
	 .msa_sparse = run_msa_sparse,
	 .mla_write = kvk_mla_write,
	 .kv_write = kvk_kv_write},
};
int version_count = 2;

/* Before main(): what there is depends on the machine. */
static __attribute__((constructor)) void find_levels(void)
{
	for (int level = 0; level < KVK_LEVELS; level++)
		if (kvk_level_usable(level))
			versions[version_count++] = levels[level];
}
