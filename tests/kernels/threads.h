/* SPDX-License-Identifier: Apache-2.0 */
/* Threads for kernels under test, of both kinds that a kernel may meet. */
#ifndef KVPOOL_TEST_THREADS_H
#define KVPOOL_TEST_THREADS_H

#include <kvpool/kernels.h>

/* `count` tasks at once, on threads made for each run. */
struct kvk_threads kvt_threads_at_once(uint32_t count);
/* `count` tasks one after another, the last one first, as a pool that can't be shared does them. */
struct kvk_threads kvt_threads_backwards(uint32_t count);

#endif
