/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of blocks through the links in struct kvd_block: any block leaves in O(1), and no list ever
 * allocates.
 */
#include "books.h"

void kvd_list_init(struct kvd_list *list)
{
	*list = (struct kvd_list){.head = -1, .tail = -1};
}

void kvd_list_push_front(struct kvd_pool *pool, struct kvd_list *list, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	block->previous = -1;
	block->next = list->head;
	if (list->head < 0)
		list->tail = id;
	else
		kvd_block(pool, list->head)->previous = id;
	list->head = id;
	list->length++;
}

void kvd_list_push_back(struct kvd_pool *pool, struct kvd_list *list, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	block->previous = list->tail;
	block->next = -1;
	if (list->tail < 0)
		list->head = id;
	else
		kvd_block(pool, list->tail)->next = id;
	list->tail = id;
	list->length++;
}

void kvd_list_remove(struct kvd_pool *pool, struct kvd_list *list, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(list->length > 0);
	if (block->previous < 0)
		list->head = block->next;
	else
		kvd_block(pool, block->previous)->next = block->next;
	if (block->next < 0)
		list->tail = block->previous;
	else
		kvd_block(pool, block->next)->previous = block->previous;
	block->previous = -1;
	block->next = -1;
	list->length--;
}

struct kvd_list *kvd_list_of(struct kvd_pool *pool, const struct kvd_block *block)
{
	switch (block->list) {
	case KVD_LIST_FREE:
		return &pool->free;
	case KVD_LIST_SINKS:
		return &pool->sinks;
	case KVD_LIST_OWNED:
		return &block->owner->owned[block->record.state];
	case KVD_LIST_ORPHANS:
		return &pool->orphans;
	case KVD_LIST_RIPE:
		return &pool->ripe;
	default:
		return NULL;
	}
}
