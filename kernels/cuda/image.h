/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compiled kernels, as the driver's cuModuleLoadData() takes them: a fatbin for sm_80, sm_90a and
 * sm_100, and PTX.
 */
#ifndef KVPOOL_KERNELS_CUDA_IMAGE_H
#define KVPOOL_KERNELS_CUDA_IMAGE_H

#include <stddef.h>

/*
 * NULL, with *out_bytes 0, in a build without nvcc: there are then no kernels for a GPU, and who wanted
 * some says so.
 */
const void *kvk_cuda_image(size_t *out_bytes);

#endif
