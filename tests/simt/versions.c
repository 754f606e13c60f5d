/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's kernels as versions for the golden runner: with equal parts on a device of few
 * multiprocessors, in order; and in fixed pieces, in a random schedule. f32 outputs are held to 4e-3 of the
 * row's largest magnitude: P is rounded to bf16, which is 2^-9 of each term. bf16 outputs, lse, scores and
 * selections to what the CPU's are held to.
 */
#include "versions.h"

#include "device.h"

#define ROW_LIMIT 4e-3

/* The version in fixed pieces uses warpgroups where it can. */
static int launch_mla_dense(const struct kvk_mla_dense_params *params, int32_t split_keys, uint64_t seed)
{
	struct simt_device device;

	simt_device_open(&device, 3, split_keys, seed);
	device.device.flags = split_keys ? simt_device_flags() : 0;
	return simt_mla_dense(&device, params);
}

static int launch_mla_sparse(const struct kvk_mla_sparse_params *params, int32_t split_keys, uint64_t seed)
{
	struct simt_device device;

	simt_device_open(&device, 3, split_keys, seed);
	return simt_mla_sparse(&device, params);
}

static int launch_gqa_dense(const struct kvk_gqa_dense_params *params, int32_t split_keys, uint64_t seed)
{
	struct simt_device device;

	simt_device_open(&device, 3, split_keys, seed);
	return simt_gqa_dense(&device, params);
}

static int launch_msa_sparse(const struct kvk_msa_sparse_params *params, int32_t split_keys, uint64_t seed)
{
	struct simt_device device;

	simt_device_open(&device, 3, split_keys, seed);
	return simt_msa_sparse(&device, params);
}

static int launch_msa_scores(const struct kvk_msa_scores_params *params, int32_t split_keys, uint64_t seed)
{
	struct simt_device device;

	simt_device_open(&device, 3, split_keys, seed);
	return kvk_msa_scores_cuda(&device.device, params);
}

static int launch_msa_select(const struct kvk_msa_select_params *params, int32_t split_keys, uint64_t seed)
{
	struct simt_device device;

	simt_device_open(&device, 3, split_keys, seed);
	return kvk_msa_select_cuda(&device.device, params);
}

#define AS_VERSION(op, name, split_keys, seed)                                                               \
	static int name##_##op(const struct kvk_##op##_params *params)                                       \
	{                                                                                                    \
		return launch_##op(params, split_keys, seed);                                                \
	}

#define VERSION(name_, split_keys, seed)                                                                     \
	AS_VERSION(mla_dense, name_, split_keys, seed)                                                       \
	AS_VERSION(mla_sparse, name_, split_keys, seed)                                                      \
	AS_VERSION(gqa_dense, name_, split_keys, seed)                                                       \
	AS_VERSION(msa_sparse, name_, split_keys, seed)                                                      \
	AS_VERSION(msa_scores, name_, split_keys, seed)                                                      \
	AS_VERSION(msa_select, name_, split_keys, seed)

#define ENTRY(name_)                                                                                         \
	{                                                                                                    \
		.name = #name_, .row_limit = ROW_LIMIT, .mla_dense = name_##_mla_dense,                      \
		.gqa_dense = name_##_gqa_dense, .mla_sparse = name_##_mla_sparse,                            \
		.msa_scores = name_##_msa_scores, .msa_select = name_##_msa_select,                          \
		.msa_sparse = name_##_msa_sparse                                                             \
	}

VERSION(equal, 0, 0)
VERSION(fixed, 128, 7)

struct version versions[] = {ENTRY(equal), ENTRY(fixed)};
int version_count = 2;
