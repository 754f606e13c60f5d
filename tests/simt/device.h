/* SPDX-License-Identifier: Apache-2.0 */
/* A device for kvk_<op>_cuda() whose kernels run here and now: on the CPU, or by tests/gpu on a device. */
#ifndef KVPOOL_TEST_SIMT_DEVICE_H
#define KVPOOL_TEST_SIMT_DEVICE_H

#include "cuda/launch.h"

/* What ran on it. */
struct simt_device {
	struct kvk_cuda_device device;
	uint64_t seed; /* of the schedules */
	int launches;
};

/*
 * `units` multiprocessors; pieces of `split_keys`, see struct kvk_cuda_device. A launch that fails prints
 * why, gives -EFAULT. On a GPU there are as many as it has, and no schedules: `units` are for the plans only.
 */
void simt_device_open(struct simt_device *device, int32_t units, int32_t split_keys, uint64_t seed);

/* KVK_CUDA_WARPGROUPS where the kernels that need them run. */
uint32_t simt_device_flags(void);

/* Runs one launch: here, or on a GPU where tests/gpu/device.c is linked. `context`: the simt_device. */
int simt_device_launch(void *context, const struct kvk_cuda_launch *launch);

/* Scratch of exactly `bytes`, aligned, full of NaN. */
void *simt_scratch(size_t bytes);

/* kvk_<op>_cuda() with scratch of its own. */
int simt_mla_dense(struct simt_device *device, const struct kvk_mla_dense_params *params);
int simt_mla_sparse(struct simt_device *device, const struct kvk_mla_sparse_params *params);
int simt_gqa_dense(struct simt_device *device, const struct kvk_gqa_dense_params *params);
int simt_msa_sparse(struct simt_device *device, const struct kvk_msa_sparse_params *params);

#endif
