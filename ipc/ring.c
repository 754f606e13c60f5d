/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings. Memory order, by pairs:
 *
 *   P1  producer's release of tail -> consumer's acquire of tail: the record is there
 *   P2  consumer's release of head -> producer's acquire of head: the record was copied out, its place is free
 *   P3  (store of tail, fence, load of the sleeping word) and (store of the sleeping word, fence, load of tail):
 *       one of the two sees the other. It is store-load order that matters, so both fences are seq_cst
 *
 * A record's words are moved by relaxed atomics, each exactly once: a peer that overwrites a record while it
 * is read makes it garbage, which validation refuses, and never makes two reads of one word differ.
 */
#include "ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <kvpool/error.h>

#define RECORD_BYTES 64u
#define RECORD_WORDS (RECORD_BYTES / sizeof(uint64_t))

static_assert((KVW_RING_RECORDS & (KVW_RING_RECORDS - 1)) == 0, "free-running indices need a power of two");
static_assert(sizeof(struct kvw_request) == RECORD_BYTES && sizeof(struct kvw_completion) == RECORD_BYTES,
	      "records");

static _Atomic uint64_t *record_at(const struct kvw_ring *ring, uint32_t index)
{
	return (_Atomic uint64_t *)ring->records + (index % KVW_RING_RECORDS) * RECORD_WORDS;
}

/* Records between two free-running indices; more than the ring holds means that the peer's index is a lie. */
static int level(uint32_t tail, uint32_t head)
{
	uint32_t records = tail - head;

	return records > KVW_RING_RECORDS ? -KVP_EPROTO : (int)records;
}

void kvw_ring_init(struct kvw_ring *ring, struct kvw_ring_words *words, void *records)
{
	ring->words = words;
	ring->records = records;
	ring->own = 0;
}

int kvw_ring_space(struct kvw_ring *ring)
{
	/* P2, with kvw_ring_take(). */
	int used = level(ring->own, atomic_load_explicit(&ring->words->head, memory_order_acquire));

	return used < 0 ? used : (int)KVW_RING_RECORDS - used;
}

int kvw_ring_post(struct kvw_ring *ring, const void *record)
{
	_Atomic uint64_t *place = record_at(ring, ring->own);
	uint64_t words[RECORD_WORDS];
	int space = kvw_ring_space(ring);
	uint32_t i;

	if (space <= 0)
		return space < 0 ? space : -KVP_EBACKLOG;
	memcpy(words, record, sizeof(words));
	for (i = 0; i < RECORD_WORDS; i++)
		atomic_store_explicit(&place[i], words[i], memory_order_relaxed);
	ring->own++;
	/* P1, with kvw_ring_waiting(). */
	atomic_store_explicit(&ring->words->tail, ring->own, memory_order_release);
	return 0;
}

int kvw_ring_waiting(struct kvw_ring *ring)
{
	/* P1, with kvw_ring_post(). */
	return level(atomic_load_explicit(&ring->words->tail, memory_order_acquire), ring->own);
}

int kvw_ring_peek(struct kvw_ring *ring, void *record)
{
	_Atomic uint64_t *place = record_at(ring, ring->own);
	uint64_t words[RECORD_WORDS];
	int waiting = kvw_ring_waiting(ring);
	uint32_t i;

	if (waiting <= 0)
		return waiting;
	for (i = 0; i < RECORD_WORDS; i++)
		words[i] = atomic_load_explicit(&place[i], memory_order_relaxed);
	memcpy(record, words, sizeof(words));
	return 1;
}

int kvw_ring_take(struct kvw_ring *ring, void *record)
{
	int ret = kvw_ring_peek(ring, record);

	if (ret <= 0)
		return ret;
	ring->own++;
	/* P2, with kvw_ring_space(). */
	atomic_store_explicit(&ring->words->head, ring->own, memory_order_release);
	return 1;
}

bool kvw_ring_passed(struct kvw_ring *ring, uint32_t mark)
{
	/* P2, with kvw_ring_take(). A head that lies reads as "not yet". */
	int used = level(ring->own, atomic_load_explicit(&ring->words->head, memory_order_acquire));

	return used >= 0 && (uint32_t)used <= ring->own - mark;
}

void kvw_store_load_fence(void)
{
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
	/* The sanitizer does not model fences; it needs none here, since every word around them is atomic. */
#pragma GCC diagnostic ignored "-Wtsan"
#endif
	atomic_thread_fence(memory_order_seq_cst);
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

bool kvw_must_ring(const struct kvw_directory_header *directory)
{
	/*
	 * P3: the post before this call is the store; the daemon's fence stands between its sleeping word and
	 * its look.
	 */
	kvw_store_load_fence();
	return atomic_load_explicit(&directory->daemon_sleeping, memory_order_relaxed) != 0;
}

int kvw_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t timeout_ms)
{
	struct timespec timeout = {
		.tv_sec = timeout_ms / 1000,
		.tv_nsec = (long)(timeout_ms % 1000) * 1000000,
	};

	/* Not FUTEX_PRIVATE: the waker is another process. The kernel compares again before it sleeps. */
	if (syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0) == 0)
		return 0;
	return -errno;
}

int kvw_futex_wake(_Atomic uint32_t *word, int most)
{
	return (int)syscall(SYS_futex, word, FUTEX_WAKE, most, NULL, NULL, 0);
}
