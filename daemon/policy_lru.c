/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Least recently released first: one doubly linked list through an array of links, old end at the
 * head. A block that came in after its children leaves after them, so chains shrink from their tails.
 */
#include "policy.h"

#include <errno.h>
#include <stdlib.h>

#include "assert.h"

#define END (-1)
#define OUTSIDE (-2)

struct link {
	int32_t previous; /* OUTSIDE: the block is not inside */
	int32_t next;
};

struct kvd_policy {
	int32_t oldest;
	int32_t youngest;
	uint32_t blocks;
	uint32_t members;
	struct link link[];
};

static int lru_create(uint32_t blocks, struct kvd_policy **out)
{
	struct kvd_policy *lru = malloc(sizeof(*lru) + (size_t)blocks * sizeof(struct link));
	uint32_t id;

	if (!lru)
		return -ENOMEM;
	lru->oldest = END;
	lru->youngest = END;
	lru->blocks = blocks;
	lru->members = 0;
	for (id = 0; id < blocks; id++)
		lru->link[id] = (struct link){.previous = OUTSIDE, .next = OUTSIDE};
	*out = lru;
	return 0;
}

static void lru_destroy(struct kvd_policy *lru)
{
	free(lru);
}

static int lru_contains(const struct kvd_policy *lru, int32_t id)
{
	return lru->link[id].previous != OUTSIDE;
}

static void lru_insert(struct kvd_policy *lru, int32_t id)
{
	kvd_assert(!lru_contains(lru, id));
	lru->link[id] = (struct link){.previous = lru->youngest, .next = END};
	if (lru->youngest == END)
		lru->oldest = id;
	else
		lru->link[lru->youngest].next = id;
	lru->youngest = id;
	lru->members++;
}

static void lru_remove(struct kvd_policy *lru, int32_t id)
{
	struct link link = lru->link[id];

	kvd_assert(link.previous != OUTSIDE);
	if (link.previous == END)
		lru->oldest = link.next;
	else
		lru->link[link.previous].next = link.next;
	if (link.next == END)
		lru->youngest = link.previous;
	else
		lru->link[link.next].previous = link.previous;
	lru->link[id] = (struct link){.previous = OUTSIDE, .next = OUTSIDE};
	lru->members--;
}

static int32_t lru_victim(const struct kvd_policy *lru)
{
	return lru->oldest;
}

static int lru_check(const struct kvd_policy *lru, uint32_t members)
{
	int32_t previous = END;
	int32_t id = lru->oldest;
	uint32_t seen = 0;

	while (id != END) {
		if (id < 0 || (uint32_t)id >= lru->blocks || seen == lru->blocks ||
		    lru->link[id].previous != previous)
			return -EUCLEAN;
		previous = id;
		id = lru->link[id].next;
		seen++;
	}
	return previous == lru->youngest && seen == lru->members && seen == members ? 0 : -EUCLEAN;
}

const struct kvd_policy_ops kvd_policy_lru = {
	.name = "lru",
	.create = lru_create,
	.destroy = lru_destroy,
	.insert = lru_insert,
	.remove = lru_remove,
	.victim = lru_victim,
	.check = lru_check,
	.contains = lru_contains,
};
