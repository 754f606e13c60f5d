/* SPDX-License-Identifier: Apache-2.0 */
/* A set of 64-bit keys that counts how often each was added: open addressing, grown at half full. */
#ifndef KVPOOL_TOOLS_REPLAY_SET_H
#define KVPOOL_TOOLS_REPLAY_SET_H

#include <stdint.h>

struct rep_set_entry {
	uint64_t key;
	uint32_t count; /* 0: empty */
	uint32_t value; /* the adder's */
};
struct rep_set {
	struct rep_set_entry *entries;
	uint64_t capacity; /* a power of two */
	uint64_t used;
};

/* Times added before, or -ENOMEM. value is kept from the first time. */
int rep_set_add(struct rep_set *set, uint64_t key, uint32_t value);
/* Times added. */
uint32_t rep_set_count(const struct rep_set *set, uint64_t key);
void rep_set_free(struct rep_set *set);

#endif
