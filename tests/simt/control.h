/* SPDX-License-Identifier: Apache-2.0 */
/* What tests ask of the machine beyond kernel_table.h. C and C++. */
#ifndef KVPOOL_TEST_SIMT_CONTROL_H
#define KVPOOL_TEST_SIMT_CONTROL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIMT_MAX_THREADS 1024 /* of a block */

/*
 * The schedule of this thread's later launches. 0, as at the start: threads in order; else a random one,
 * the same for the same seed.
 */
void simt_set_seed(uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
