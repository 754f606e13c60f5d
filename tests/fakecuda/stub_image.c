/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for the compiled kernels, in every build: the double runs those that tests/simt has built. */
#include "kernels/cuda/image.h"
#include "tests/simt/kernel_table.h"

const void *kvk_cuda_image(size_t *out_bytes)
{
	*out_bytes = sizeof(SIMT_STUB_IMAGE);
	return SIMT_STUB_IMAGE;
}
