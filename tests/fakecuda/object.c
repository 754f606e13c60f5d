/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: numbers that are never given twice, so that one used after its end is told from a living one. */
#include "fake.h"

#include <stdlib.h>

#define FIRST_HANDLE UINT64_C(0xcafe0000000)
#define STEP 16u

struct entry {
	enum fake_kind kind;
	void *body; /* NULL: ended */
};

static struct entry *entries;
static size_t count, capacity;

static void *handle_of(size_t index)
{
	return (void *)(uintptr_t)(FIRST_HANDLE + index * STEP);
}

static struct entry *entry_of(enum fake_kind kind, const void *handle)
{
	uint64_t offset = (uint64_t)(uintptr_t)handle - FIRST_HANDLE;

	if (offset % STEP || offset / STEP >= count || entries[offset / STEP].kind != kind)
		return NULL;
	return &entries[offset / STEP];
}

void *fake_object_add(enum fake_kind kind, void *body)
{
	if (count == capacity) {
		capacity = capacity ? 2 * capacity : 256;
		entries = realloc(entries, capacity * sizeof(*entries));
		if (!entries)
			abort();
	}
	entries[count] = (struct entry){kind, body};
	fake_live_add(kind, 1);
	return handle_of(count++);
}

void *fake_object_get(enum fake_kind kind, const void *handle)
{
	const struct entry *entry = entry_of(kind, handle);

	return entry ? entry->body : NULL;
}

void fake_object_remove(enum fake_kind kind, const void *handle)
{
	struct entry *entry = entry_of(kind, handle);

	if (!entry || !entry->body)
		return;
	entry->body = NULL;
	fake_live_add(kind, -1);
}
