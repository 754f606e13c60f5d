/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVPOOL_LIBCLIENT_REFUSED_H
#define KVPOOL_LIBCLIENT_REFUSED_H

#include <stdint.h>

struct kvw_completion;

/* What the daemon said beside an error. */
void kvc_note_refused(const struct kvw_completion *completion, uint64_t said[4]);
/* Fails with what the daemon said beside an error: free, draining, evictable blocks, limit. */
int kvc_refused_text(int status, const char *what, const uint64_t said[4]);

#endif
