/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs that begin with their size: how a caller compiled against an older or newer header is understood.
 */
#ifndef KVPOOL_LIBCLIENT_PARAMS_H
#define KVPOOL_LIBCLIENT_PARAMS_H

#include <stdint.h>

/*
 * Copies the caller's struct `given` into own[own_bytes]: a shorter one is extended by zeros; a longer one is accepted when the tail that
 * we don't know is zero, else -E2BIG. -EINVAL: no size. `what` names it in the text.
 */
int kvc_params_read(void *own, uint32_t own_bytes, const void *given, const char *what);

/* Whether the caller's struct has a size: for calls that change something before they write it. */
int kvc_params_check(const void *given, const char *what);
/* Copies own[own_bytes] out, at most the bytes that the caller's struct has; its size stays. -EINVAL: no size. */
int kvc_params_write(void *given, void *own, uint32_t own_bytes, const char *what);

#endif
