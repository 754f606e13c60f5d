/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points that choose: the fast version at the level chosen for this machine (cpu/level.h), or the
 * reference where an operation has no other. Every version meets the same tests against the reference, so which
 * one ran is never visible in more than rounding.
 */
#include "check.h"
#include "cpu/cpu.h"
#include "internal.h"

#include <errno.h>

static int scratch_size(int shape_result, size_t bytes, size_t *out_bytes)
{
	if (shape_result)
		return shape_result;
	if (bytes == SIZE_MAX)
		return -EOVERFLOW;
	*out_bytes = bytes;
	return 0;
}

/* kvk_<op>() and kvk_<op>_scratch() of an operation with a fast version in cpu/. */
#define FAST(op)                                                                                             \
	int kvk_##op##_scratch(const struct kvk_##op##_params *params, size_t *out_bytes)                    \
	{                                                                                                    \
		struct kvk_##op##_params shape;                                                              \
		int ret = kvk_shape_##op(params, &shape);                                                    \
                                                                                                             \
		return scratch_size(ret, ret ? 0 : kvk_##op##_cpu_scratch(&shape), out_bytes);               \
	}                                                                                                    \
                                                                                                             \
	int kvk_##op(const struct kvk_##op##_params *params)                                                 \
	{                                                                                                    \
		struct kvk_##op##_params ready;                                                              \
		enum kvk_level level;                                                                        \
		int ret = kvk_prepare_##op(params, &ready);                                                  \
                                                                                                             \
		if (ret <= 0)                                                                                \
			return ret;                                                                          \
		ret = kvk_check_scratch(ready.scratch, ready.scratch_bytes, kvk_##op##_cpu_scratch(&ready)); \
		if (!ret)                                                                                    \
			ret = kvk_level_choose(&level);                                                      \
		if (!ret)                                                                                    \
			kvk_##op##_cpu(&ready, level);                                                       \
		return ret;                                                                                  \
	}

/* kvk_<op>() of one that needs no scratch. */
#define FAST_PLAIN(op)                                                                                       \
	int kvk_##op(const struct kvk_##op##_params *params)                                                 \
	{                                                                                                    \
		struct kvk_##op##_params ready;                                                              \
		enum kvk_level level;                                                                        \
		int ret = kvk_prepare_##op(params, &ready);                                                  \
                                                                                                             \
		if (ret <= 0)                                                                                \
			return ret;                                                                          \
		ret = kvk_level_choose(&level);                                                              \
		if (!ret)                                                                                    \
			kvk_##op##_cpu(&ready, level);                                                       \
		return ret;                                                                                  \
	}

/* An operation whose only version is the reference; it obeys $KVPOOL_KERNELS all the same. */
#define REFERENCE(op)                                                                                        \
	int kvk_##op(const struct kvk_##op##_params *params)                                                 \
	{                                                                                                    \
		enum kvk_level level;                                                                        \
		int ret = kvk_level_choose(&level);                                                          \
                                                                                                             \
		return ret ? ret : kvk_##op##_ref(params);                                                   \
	}

FAST(mla_dense)
FAST(mla_sparse)
FAST(gqa_dense)
FAST(msa_scores)
FAST(msa_sparse)

int kvk_msa_select(const struct kvk_msa_select_params *params)
{
	struct kvk_msa_select_params ready;
	enum kvk_level level;
	int ret = kvk_prepare_msa_select(params, &ready);

	if (ret <= 0)
		return ret;
	ret = kvk_level_choose(&level);
	if (!ret)
		kvk_msa_select_cpu(&ready); /* the same at every level */
	return ret;
}

REFERENCE(combine)
REFERENCE(mla_plan)

FAST_PLAIN(mla_write)
FAST_PLAIN(kv_write)
