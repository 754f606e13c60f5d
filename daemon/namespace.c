/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of namespaces. Attaching is rare, so every search is a walk.
 */
#include "namespace.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <kvpool/error.h>

static bool same_identity(const struct kvd_identity *a, const struct kvd_identity *b)
{
	return a->uid == b->uid && a->numerics == b->numerics &&
	       !memcmp(a->digest, b->digest, sizeof(a->digest));
}

static struct kvd_namespace *find(struct kvd_namespaces *namespaces, const struct kvd_identity *identity)
{
	uint32_t i;

	for (i = 0; i < namespaces->count; i++) {
		if (same_identity(&namespaces->entries[i].identity, identity))
			return &namespaces->entries[i];
	}
	return NULL;
}

static uint32_t count_of_uid(const struct kvd_namespaces *namespaces, uint32_t uid)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < namespaces->count; i++)
		count += namespaces->entries[i].identity.uid == uid;
	return count;
}

/* The longest unused entry, of `uid` only or of anybody; NULL when all are in use. */
static struct kvd_namespace *longest_unused(struct kvd_namespaces *namespaces, bool any_uid, uint32_t uid)
{
	struct kvd_namespace *oldest = NULL;
	uint32_t i;

	for (i = 0; i < namespaces->count; i++) {
		struct kvd_namespace *entry = &namespaces->entries[i];

		if (entry->users || (!any_uid && entry->identity.uid != uid))
			continue;
		if (!oldest || entry->last_use < oldest->last_use)
			oldest = entry;
	}
	return oldest;
}

static struct kvd_namespace *place_for(struct kvd_namespaces *namespaces, uint32_t uid)
{
	if (count_of_uid(namespaces, uid) >= KVD_MAX_UID_NAMESPACES)
		return longest_unused(namespaces, false, uid);
	if (namespaces->count == KVD_MAX_NAMESPACES)
		return longest_unused(namespaces, true, 0);
	return &namespaces->entries[namespaces->count++];
}

int kvd_namespace_acquire(struct kvd_namespaces *namespaces, const struct kvd_identity *identity,
			  uint32_t *out_id)
{
	struct kvd_namespace *entry = find(namespaces, identity);

	if (!entry) {
		if (namespaces->last_id == UINT32_MAX)
			return -KVP_ELIMIT;
		entry = place_for(namespaces, identity->uid);
		if (!entry)
			return -KVP_ELIMIT;
		*entry = (struct kvd_namespace){.identity = *identity, .id = ++namespaces->last_id};
	}
	entry->users++;
	entry->last_use = ++namespaces->clock;
	*out_id = entry->id;
	return 0;
}

void kvd_namespace_release(struct kvd_namespaces *namespaces, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < namespaces->count; i++) {
		if (namespaces->entries[i].id != id)
			continue;
		namespaces->entries[i].users--;
		namespaces->entries[i].last_use = ++namespaces->clock;
		return;
	}
}
