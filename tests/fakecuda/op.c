/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a queued operation does when its turn comes. Runs without the lock, but for the question whether it
 * is ready.
 */
#include "fake.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES 4096u
#define LARGE_BYTES (1u << 20)

static void *host(uint64_t pointer)
{
	return (void *)(uintptr_t)pointer;
}

static uint64_t load_word(const struct fake_op *op)
{
	return op->u.word.width == 4 ? __atomic_load_n((uint32_t *)host(op->to), __ATOMIC_ACQUIRE)
				     : __atomic_load_n((uint64_t *)host(op->to), __ATOMIC_ACQUIRE);
}

/* "At least" is cyclic: the difference as a signed number of the word's width. */
static bool word_ready(const struct fake_op *op)
{
	uint64_t word = load_word(op);
	uint64_t value = op->u.word.value;

	switch (op->u.word.flags & 3) {
	case KVW_CUDA_WAIT_GEQ:
		return op->u.word.width == 4 ? (int32_t)((uint32_t)word - (uint32_t)value) >= 0
					     : (int64_t)(word - value) >= 0;
	case KVW_CUDA_WAIT_EQ:
		return word == value;
	case KVW_CUDA_WAIT_AND:
		return (word & value) != 0;
	default:
		return (op->u.word.width == 4 ? (uint32_t) ~(word | value) : ~(word | value)) != 0;
	}
}

bool fake_op_ready(const struct fake_op *op)
{
	bool ready = true;

	if (op->kind == FAKE_OP_WAIT_EVENT)
		return op->u.event.event->state->done >= op->u.event.generation;
	if (op->kind != FAKE_OP_WAIT_VALUE)
		return true;
	fake_range_unlock_all(true);
	ready = word_ready(op);
	fake_range_unlock_all(false);
	return ready;
}

/* Whole pages of zeroes are given back to the machine: a test's pool may be larger than its memory. */
static bool zero_pages(const struct fake_op *op)
{
	uint64_t from = (op->to + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	uint64_t to = (op->to + op->bytes) / PAGE_BYTES * PAGE_BYTES;

	if (op->u.set.value || op->bytes < LARGE_BYTES || madvise(host(from), to - from, MADV_REMOVE))
		return false;
	memset(host(op->to), 0, from - op->to);
	memset(host(to), 0, op->to + op->bytes - to);
	return true;
}

static void set(const struct fake_op *op)
{
	uint32_t *words = host(op->to);

	if (zero_pages(op))
		return;
	if (op->u.set.width == 1) {
		memset(words, (int)op->u.set.value, op->bytes);
		return;
	}
	for (uint64_t i = 0; i < op->bytes / 4; i++)
		words[i] = op->u.set.value;
}

static void write_word(const struct fake_op *op)
{
	if (op->u.word.width == 4)
		__atomic_store_n((uint32_t *)host(op->to), (uint32_t)op->u.word.value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint64_t *)host(op->to), op->u.word.value, __ATOMIC_RELEASE);
}

static void record(const struct fake_op *op)
{
	struct fake_event_state *state = op->u.event.event->state;

	state->done_ns = fake_now_ns();
	if (state->done < op->u.event.generation)
		state->done = op->u.event.generation;
}

unsigned fake_op_run(const struct fake_op *op)
{
	switch (op->kind) {
	case FAKE_OP_COPY:
		memmove(host(op->to), host(op->u.copy.from), op->bytes);
		return 0;
	case FAKE_OP_SET:
		set(op);
		return 0;
	case FAKE_OP_WRITE_VALUE:
		write_word(op);
		return 0;
	case FAKE_OP_RECORD:
		record(op);
		return 0;
	case FAKE_OP_HOST:
		op->u.host.function(op->u.host.argument);
		return 0;
	case FAKE_OP_LAUNCH:
		return fake_launch_run(op->u.launch);
	default:
		return 0;
	}
}
