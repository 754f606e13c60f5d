/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses: which range of this process is what. Each process has a window of the address space of its own,
 * by its place in the machine, so that a pointer sent to another process as a number is never valid there.
 */
#include "fake.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVT_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define KVT_TSAN 1
#endif

#ifdef KVT_TSAN
/*
 * ThreadSanitizer knows the program's memory by its address: from 0x7e8000000000 to the end of what a process has. A wish outside of that it makes
 * an address of 0, which the kernel then takes from root for the fixed place that was meant. Libraries lie from 0x7eff00000000 on.
 */
#define WINDOW_BASE UINT64_C(0x7e8100000000)
#define WINDOW_BYTES UINT64_C(0x180000000)
static_assert(WINDOW_BASE + FAKE_MAX_PROCESSES * WINDOW_BYTES < UINT64_C(0x7ef000000000),
	      "every process's window is the program's memory");
#else
#define WINDOW_BASE UINT64_C(0x200000000000)
#define WINDOW_BYTES UINT64_C(0x4000000000)
#endif
#define TRIES 64

static struct fake_range *all;
static uint64_t next_address;

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static bool reserve(uint64_t address, uint64_t bytes)
{
	void *wanted = (void *)(uintptr_t)address;
	void *got = mmap(wanted, bytes, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (got == wanted)
		return true;
	if (got != MAP_FAILED)
		munmap(got, bytes);
	return false;
}

/* Where the process's window is taken, the kernel chooses. */
static uint64_t place_anywhere(uint64_t bytes, uint64_t alignment)
{
	char *memory =
		mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t start = (uint64_t)(uintptr_t)memory;
	uint64_t address = round_up(start, alignment);

	if (memory == MAP_FAILED)
		return 0;
	if (address > start)
		munmap(memory, address - start);
	munmap(memory + (address - start) + bytes, alignment - (address - start));
	return address;
}

uint64_t fake_range_place(uint64_t bytes, uint64_t alignment)
{
	if (!next_address)
		next_address = WINDOW_BASE + fake_self_index() * WINDOW_BYTES +
			       fake_settings()->seed % 1024 * FAKE_GRANULARITY;
	bytes = round_up(bytes, FAKE_GRANULARITY);
	if (alignment < FAKE_GRANULARITY)
		alignment = FAKE_GRANULARITY;
	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t address = round_up(next_address, alignment);

		next_address = address + bytes + FAKE_GRANULARITY; /* a gap that faults */
		if (reserve(address, bytes))
			return address;
	}
	return place_anywhere(bytes, alignment);
}

struct fake_range *fake_range_first(void)
{
	return all;
}

struct fake_range *fake_range_add(enum fake_kind kind, uint64_t base, uint64_t bytes)
{
	struct fake_range *range = calloc(1, sizeof(*range));

	if (!range)
		abort();
	*range =
		(struct fake_range){.kind = kind, .base = base, .bytes = bytes, .references = 1, .next = all};
	all = range;
	fake_live_add(kind, 1);
	return range;
}

void fake_range_remove(struct fake_range *range)
{
	struct fake_range **at = &all;

	while (*at != range)
		at = &(*at)->next;
	*at = range->next;
	fake_live_add(range->kind, -1);
	free(range);
}

struct fake_range *fake_range_find(enum fake_kind kind, uint64_t address)
{
	struct fake_range *range = all;

	while (range &&
	       (range->kind != kind || address < range->base || address - range->base >= range->bytes))
		range = range->next;
	return range;
}

static int protection(unsigned access)
{
	if (access == KVW_CUDA_ACCESS_READ_WRITE)
		return PROT_READ | PROT_WRITE;
	return access ? PROT_READ : PROT_NONE;
}

static int protection_now(const struct fake_range *range)
{
	return fake_settings()->protect ? PROT_NONE : protection(range->access);
}

bool fake_range_map(const struct fake_range *range)
{
	void *at = (void *)(uintptr_t)range->base;

	if (mmap(at, range->bytes, protection_now(range), MAP_SHARED | MAP_FIXED, range->physical->fd,
		 (off_t)range->offset) == MAP_FAILED)
		return false;
	(void)madvise(at, round_up(range->bytes, 4096), MADV_DONTFORK);
	return true;
}

/* A mapping's addresses stay reserved; all others are given back. */
void fake_range_unmap(struct fake_range *range)
{
	void *at = (void *)(uintptr_t)range->base;

	if (range->kind == FAKE_KIND_MAPPING)
		(void)mmap(at, range->bytes, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	else
		munmap(at, round_up(range->bytes, FAKE_GRANULARITY));
}

struct fake_range *fake_range_at(uint64_t address)
{
	struct fake_range *range = all;

	while (range && (range->kind == FAKE_KIND_RESERVATION || address < range->base ||
			 address - range->base >= range->bytes))
		range = range->next;
	return range;
}

/* Neighbouring mappings are one memory. */
static bool covered(uint64_t address, uint64_t bytes, unsigned access)
{
	uint64_t end = address + bytes;

	if (end < address)
		return false;
	while (address < end) {
		const struct fake_range *range = fake_range_at(address);

		if (!range || (range->access & access) != access)
			return false;
		address = range->base + range->bytes;
	}
	return true;
}

unsigned fake_range_check(uint64_t address, uint64_t bytes)
{
	return covered(address, bytes, KVW_CUDA_ACCESS_READ) ? 0 : KVW_CUDA_INVALID_VALUE;
}

bool fake_range_writable(uint64_t address, uint64_t bytes)
{
	return covered(address, bytes, KVW_CUDA_ACCESS_READ_WRITE);
}

bool fake_host_registered(const void *memory, uint64_t bytes)
{
	uint64_t address = (uint64_t)(uintptr_t)memory;
	const struct fake_range *range = fake_range_find(FAKE_KIND_REGISTRATION, address);

	return range && bytes <= range->base + range->bytes - address;
}

void fake_range_unlock_all(bool unlocked)
{
	if (!fake_settings()->protect)
		return;
	for (const struct fake_range *range = all; range; range = range->next)
		if (range->physical)
			(void)mprotect((void *)(uintptr_t)range->base, round_up(range->bytes, 4096),
				       unlocked ? protection(range->access) : PROT_NONE);
}
