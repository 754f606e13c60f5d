/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of waits that doubles when it is full. It is bounded by what its engine owns: a block is
 * named by one entry at most, a hold too.
 */
#include "wait.h"

#include <errno.h>
#include <stdlib.h>

#include "assert.h"

#define FIRST_CAPACITY 64u

static struct kvd_wait *entry(const struct kvd_wait_queue *queue, uint32_t at)
{
	return &queue->entries[at & (queue->capacity - 1)];
}

int kvd_wait_reserve(struct kvd_wait_queue *queue)
{
	uint32_t length = queue->tail - queue->head;
	uint32_t capacity = queue->capacity ? queue->capacity * 2 : FIRST_CAPACITY;
	struct kvd_wait *entries;
	uint32_t i;

	if (length < queue->capacity)
		return 0;
	entries = malloc((size_t)capacity * sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	for (i = 0; i < length; i++)
		entries[i] = *entry(queue, queue->head + i);
	free(queue->entries);
	*queue = (struct kvd_wait_queue){.entries = entries, .capacity = capacity, .tail = length};
	return 0;
}

uint64_t kvd_wait_push(struct kvd_wait_queue *queue, enum kvd_wait_kind kind, uint32_t id, uint64_t step)
{
	kvd_assert(queue->tail - queue->head < queue->capacity);
	if (queue->tail != queue->head && entry(queue, queue->tail - 1)->step > step)
		step = entry(queue, queue->tail - 1)->step;
	*entry(queue, queue->tail) = (struct kvd_wait){.step = step, .kind = kind, .id = id};
	queue->tail++;
	return step;
}

const struct kvd_wait *kvd_wait_first(const struct kvd_wait_queue *queue)
{
	return queue->tail == queue->head ? NULL : entry(queue, queue->head);
}

void kvd_wait_pop(struct kvd_wait_queue *queue)
{
	kvd_assert(queue->tail != queue->head);
	queue->head++;
}

void kvd_wait_clear(struct kvd_wait_queue *queue)
{
	free(queue->entries);
	*queue = (struct kvd_wait_queue){0};
}
