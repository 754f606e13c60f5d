/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of lines. A writer takes its place by a compare and swap of the tail, which fails only when another writer got one.
 */
#include "log_ring.h"

#include <string.h>

static struct kvd_log_slot *slot_at(struct kvd_log_ring *ring, uint32_t place)
{
	return &ring->slots[place % KVD_LOG_RING_LINES];
}

void kvd_log_ring_init(struct kvd_log_ring *ring)
{
	uint32_t i;

	memset(ring, 0, sizeof(*ring));
	for (i = 0; i < KVD_LOG_RING_LINES; i++)
		atomic_init(&ring->slots[i].sequence, i);
}

/* NULL: the ring is full. Acquire pairs with kvd_log_ring_next(): what the reader read is not written over. */
static struct kvd_log_slot *take_place(struct kvd_log_ring *ring, uint32_t *out_place)
{
	uint32_t place = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	for (;;) {
		struct kvd_log_slot *slot = slot_at(ring, place);
		uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);

		if (sequence == place) {
			if (atomic_compare_exchange_weak_explicit(&ring->tail, &place, place + 1,
								  memory_order_relaxed,
								  memory_order_relaxed)) {
				*out_place = place;
				return slot;
			}
			continue; /* `place` is now the tail that was found instead */
		}
		if ((int32_t)(sequence - place) < 0)
			return NULL;
		place = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	}
}

uint64_t kvd_log_ring_take_lost(struct kvd_log_ring *ring)
{
	if (!atomic_load_explicit(&ring->lost, memory_order_relaxed))
		return 0;
	return atomic_exchange_explicit(&ring->lost, 0, memory_order_relaxed);
}

bool kvd_log_ring_put(struct kvd_log_ring *ring, const char *text, size_t length)
{
	uint32_t place;
	struct kvd_log_slot *slot = take_place(ring, &place);

	if (!slot) {
		atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&ring->lost_ever, 1, memory_order_relaxed);
		return false;
	}
	slot->lost = kvd_log_ring_take_lost(ring);
	slot->length = (uint32_t)length;
	memcpy(slot->text, text, length);
	atomic_store_explicit(&slot->sequence, place + 1, memory_order_release);
	return true;
}

const struct kvd_log_slot *kvd_log_ring_first(struct kvd_log_ring *ring)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	struct kvd_log_slot *slot = slot_at(ring, head);

	return atomic_load_explicit(&slot->sequence, memory_order_acquire) == head + 1 ? slot : NULL;
}

void kvd_log_ring_next(struct kvd_log_ring *ring)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	atomic_store_explicit(&slot_at(ring, head)->sequence, head + KVD_LOG_RING_LINES,
			      memory_order_release);
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

bool kvd_log_ring_empty(struct kvd_log_ring *ring)
{
	return atomic_load_explicit(&ring->head, memory_order_acquire) ==
	       atomic_load_explicit(&ring->tail, memory_order_relaxed);
}
