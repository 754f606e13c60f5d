/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a library of kernels built for the CPU shows to the driver double. C and C++.
 *
 * Every kernel `name` has an exported record `simt_kernel_<name>`; the library exports `simt_launch` as well, which runs a whole grid on the
 * calling thread. The double finds both by dlsym in the library that $FAKECUDA_KERNELS names (else in the program itself), copies the
 * parameters' values at the launch call by `parameter_bytes`, and calls simt_launch() later, when the stream comes to it.
 */
#ifndef KVPOOL_TESTS_SIMT_KERNEL_TABLE_H
#define KVPOOL_TESTS_SIMT_KERNEL_TABLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIMT_KERNEL_PREFIX "simt_kernel_"
#define SIMT_MAX_PARAMETERS 16
/* The image that the double takes where there is no nvcc and so no fatbin: these four bytes. */
#define SIMT_STUB_IMAGE "SIMT"

struct simt_dim {
	uint32_t x, y, z;
};

struct simt_launch {
	struct simt_dim grid, block, cluster; /* cluster: 1, 1, 1 when there is none */
	uint64_t shared_bytes;                /* dynamic */
};

struct simt_kernel {
	const char *name;
	uint32_t parameters;
	uint32_t parameter_bytes[SIMT_MAX_PARAMETERS];
	uint32_t max_threads; /* __launch_bounds__, 0: 1024 */
	/* The emulator's own: the body of one thread, called on its fiber. */
	void (*call)(void **parameters);
};

/*
 * Runs the grid to its end. 0, or the number that the driver would answer (700 illegal address, 719 launch failed); then simt_error() says
 * what happened, on one line or several.
 */
int simt_launch(const struct simt_kernel *kernel, const struct simt_launch *launch, void **parameters);
const char *simt_error(void);

typedef int (*simt_launch_fn)(const struct simt_kernel *, const struct simt_launch *, void **);
typedef const char *(*simt_error_fn)(void);

/*
 * What cuTensorMapEncodeTiled() of the double leaves in the 128 opaque bytes: the arguments, as they came. Element strides are 1, no
 * interleave. global_stride[0] is that of dimension 1, in bytes.
 */
struct simt_tensor_map {
	uint64_t magic; /* SIMT_TENSOR_MAP_MAGIC */
	uint64_t address;
	uint64_t dim[5];
	uint64_t stride[4];
	uint32_t box[5];
	uint8_t type, rank, swizzle, oob_fill; /* the driver's numbers */
	uint8_t reserved[16];
};
#define SIMT_TENSOR_MAP_MAGIC UINT64_C(0x70616d74746d6973)

#ifdef __cplusplus
static_assert(sizeof(struct simt_tensor_map) == 128, "a tensor map has 128 bytes");
}
#else
_Static_assert(sizeof(struct simt_tensor_map) == 128, "a tensor map has 128 bytes");
#endif

#endif
