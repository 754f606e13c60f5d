/* SPDX-License-Identifier: Apache-2.0 */
/* Standard error, kept for a while: what the log said. */
#ifndef KVPOOL_TEST_CAPTURED_H
#define KVPOOL_TEST_CAPTURED_H

#include <stddef.h>

void captured_start(void);
/* Gives standard error back, and what was written to it (cut to capacity - 1). */
void captured_end(char *out, size_t capacity);

#endif
