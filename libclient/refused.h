/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVPOOL_LIBCLIENT_REFUSED_H
#define KVPOOL_LIBCLIENT_REFUSED_H

#include <stdint.h>

/* Fails with what the daemon said beside an error: free, draining, evictable blocks, limit. */
int kvc_refused_text(int status, const char *what, const uint64_t said[4]);

#endif
