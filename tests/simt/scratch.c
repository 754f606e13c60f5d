/* SPDX-License-Identifier: Apache-2.0 */
/* A device, and the operations with scratch of their own, on whatever runs its launches. */
#include "device.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

void simt_device_open(struct simt_device *device, int32_t units, int32_t split_keys, uint64_t seed)
{
	*device = (struct simt_device){.device = {.size = sizeof(device->device),
						  .units = units,
						  .split_keys = split_keys,
						  .launch = simt_device_launch,
						  .context = device},
				       .seed = seed};
}

void *simt_scratch(size_t bytes)
{
	void *scratch = memalign(KVK_CUDA_SCRATCH_ALIGN, bytes + !bytes);

	if (!scratch)
		abort();
	return memset(scratch, 0xff, bytes);
}

#define WITH_SCRATCH(op)                                                                                     \
	int simt_##op(struct simt_device *device, const struct kvk_##op##_params *params)                    \
	{                                                                                                    \
		struct kvk_##op##_params p = *params;                                                        \
		size_t bytes;                                                                                \
		int ret = kvk_##op##_cuda_scratch(&device->device, &p, &bytes);                              \
                                                                                                             \
		if (ret)                                                                                     \
			return ret;                                                                          \
		p.scratch_bytes = bytes;                                                                     \
		p.scratch = simt_scratch(bytes);                                                             \
		ret = kvk_##op##_cuda(&device->device, &p);                                                  \
		free(p.scratch);                                                                             \
		return ret;                                                                                  \
	}

WITH_SCRATCH(mla_dense)
WITH_SCRATCH(mla_sparse)
WITH_SCRATCH(gqa_dense)
WITH_SCRATCH(msa_sparse)
