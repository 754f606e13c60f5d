/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapping segments that the daemon made. Nothing is mapped whose size could shrink under us.
 */
#ifndef KVPOOL_LIBCLIENT_MAP_H
#define KVPOOL_LIBCLIENT_MAP_H

#include <stdint.h>

struct kvc_mapping;

/* Maps `bytes` of the segment `fd`, sealed against shrinking, shared, not inherited by children. `what` names it. fd stays the caller's. */
int kvc_map_segment(int fd, uint64_t bytes, int writable, const char *what, struct kvc_mapping *out);
/* Zeroed memory of our own, not inherited either, of which only what is touched costs. */
int kvc_map_private(uint64_t bytes, const char *what, struct kvc_mapping *out);
void kvc_unmap(struct kvc_mapping *mapping);

#endif
