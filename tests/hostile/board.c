/* SPDX-License-Identifier: Apache-2.0 */
#include "board.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define SUB_BITS 5u

static uint32_t bin_of(uint64_t us)
{
	uint32_t octave = us < 1u << SUB_BITS ? 0 : 63 - SUB_BITS - (uint32_t)__builtin_clzll(us);
	uint32_t bin = (octave << SUB_BITS) + (uint32_t)(us >> octave);

	return bin < KVT_BINS ? bin : KVT_BINS - 1;
}

/* The upper end of a bin. */
static double value_of(uint32_t bin)
{
	uint32_t octave = bin < 2u << SUB_BITS ? 0 : (bin >> SUB_BITS) - 1;

	return (double)((uint64_t)(bin - (octave << SUB_BITS) + 1) << octave);
}

void kvt_latency_add(struct kvt_latency *latency, uint64_t ns)
{
	atomic_fetch_add_explicit(&latency->bins[bin_of(ns / 1000)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&latency->cycles, 1, memory_order_release);
}

double kvt_latency_at(const struct kvt_latency *latency, uint32_t per_mille)
{
	uint64_t rest = ((uint64_t)latency->cycles * per_mille + 999) / 1000;
	uint32_t bin;

	if (!rest)
		return 0;
	for (bin = 0; bin < KVT_BINS - 1 && latency->bins[bin] < rest; bin++)
		rest -= latency->bins[bin];
	return value_of(bin);
}

void kvt_latency_merge(struct kvt_latency *into, const struct kvt_latency *from)
{
	uint32_t bin;

	for (bin = 0; bin < KVT_BINS; bin++)
		into->bins[bin] += from->bins[bin];
	into->cycles += from->cycles;
}

struct kvt_board *kvt_board_open(void)
{
	void *memory =
		mmap(NULL, sizeof(struct kvt_board), PROT_READ | PROT_WRITE, MAP_SHARED, KVT_BOARD_FD, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

struct kvt_board *kvt_board_create(void)
{
	int fd = memfd_create("kvpool-board", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, sizeof(struct kvt_board)) || dup2(fd, KVT_BOARD_FD) < 0)
		return NULL;
	close(fd);
	return kvt_board_open();
}
