/* SPDX-License-Identifier: Apache-2.0 */
/* A counting set of 64-bit keys. */
#include "set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"

static struct rep_set_entry *find(struct rep_set_entry *entries, uint64_t capacity, uint64_t key)
{
	uint64_t at = rep_mix(key) & (capacity - 1);

	while (entries[at].count && entries[at].key != key)
		at = (at + 1) & (capacity - 1);
	return &entries[at];
}

static int grow(struct rep_set *set)
{
	uint64_t capacity = set->capacity ? 2 * set->capacity : 4096;
	struct rep_set_entry *entries = calloc(capacity, sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	for (uint64_t i = 0; i < set->capacity; i++)
		if (set->entries[i].count)
			*find(entries, capacity, set->entries[i].key) = set->entries[i];
	free(set->entries);
	set->entries = entries;
	set->capacity = capacity;
	return 0;
}

int rep_set_add(struct rep_set *set, uint64_t key, uint32_t value)
{
	struct rep_set_entry *entry;

	if (2 * set->used >= set->capacity && grow(set))
		return -ENOMEM;
	entry = find(set->entries, set->capacity, key);
	if (!entry->count) {
		entry->key = key;
		entry->value = value;
		set->used++;
	}
	return (int)entry->count++;
}

uint32_t rep_set_count(const struct rep_set *set, uint64_t key)
{
	return set->capacity ? find(set->entries, set->capacity, key)->count : 0;
}

void rep_set_free(struct rep_set *set)
{
	free(set->entries);
	memset(set, 0, sizeof(*set));
}
