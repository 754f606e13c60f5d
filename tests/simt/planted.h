/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter of every kernel in planted.cu. C and C++. */
#ifndef KVPOOL_TEST_SIMT_PLANTED_H
#define KVPOOL_TEST_SIMT_PLANTED_H

#include <stdint.h>

#define PLANTED_THREADS 256
#define PLANTED_SHARED_BYTES 1040

struct planted_args {
	const int32_t *from; /* [256] */
	int32_t *to;         /* [256] */
};

#endif
