/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a pool's pages present: several threads take chunks of one temporary mapping. MADV_POPULATE_WRITE and not fallocate(), which
 * ignores MADV_HUGEPAGE on shared memory; and not a memset, which could only fail by a signal.
 */
#include "device_host.h"

#include "log.h"
#include "machine.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES (64ull << 20)
/* More threads don't help: the kernel's own locks bound it. */
#define MAX_THREADS 4u

struct populate {
	uint8_t *memory;
	uint64_t bytes;
	_Atomic uint64_t next; /* offset of the next chunk that nobody took */
	_Atomic uint64_t *progress;
	const _Atomic int *cancel;
	_Atomic int error; /* the first */
};

static int populate_range(uint8_t *memory, uint64_t bytes)
{
	while (madvise(memory, bytes, MADV_POPULATE_WRITE) < 0) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		/* EFAULT: the fault would have been a SIGBUS, which is how a shortage of huge pages shows. */
		return errno == EFAULT ? -ENOMEM : -errno;
	}
	return 0;
}

static void fail(struct populate *job, int error)
{
	int none = 0;

	atomic_compare_exchange_strong(&job->error, &none, error);
}

static void *populate_chunks(void *arg)
{
	struct populate *job = arg;

	while (!job->error) {
		uint64_t offset = atomic_fetch_add(&job->next, CHUNK_BYTES);
		uint64_t bytes;
		int ret;

		if (offset >= job->bytes)
			break;
		bytes = job->bytes - offset < CHUNK_BYTES ? job->bytes - offset : CHUNK_BYTES;
		ret = *job->cancel ? -ECANCELED : populate_range(job->memory + offset, bytes);
		if (ret < 0)
			fail(job, ret);
		else
			atomic_fetch_add(job->progress, bytes);
	}
	return NULL;
}

static unsigned thread_count(uint64_t bytes)
{
	uint64_t chunks = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
	cpu_set_t cpus;
	unsigned count = 1;

	if (!sched_getaffinity(0, sizeof(cpus), &cpus))
		count = (unsigned)CPU_COUNT(&cpus);
	if (count > MAX_THREADS)
		count = MAX_THREADS;
	return count < chunks ? count : (unsigned)chunks;
}

/* This thread works too; one that can't be started is not missed. */
static int populate_parallel(struct populate *job)
{
	pthread_t threads[MAX_THREADS];
	unsigned wanted = thread_count(job->bytes);
	unsigned started = 0;

	while (started + 1 < wanted && !pthread_create(&threads[started], NULL, populate_chunks, job))
		started++;
	populate_chunks(job);
	while (started)
		pthread_join(threads[--started], NULL);
	return job->error;
}

/* Before the kernel's killer picks somebody. Huge pages were promised by create(). */
static int check_room(const struct kvd_memory *memory)
{
	struct kvd_machine_memory machine;
	char need[32];
	char room[32];
	bool by_cgroup;

	if (memory->pages == KVD_PAGES_HUGETLB)
		return 0;
	kvd_machine_memory("", &machine);
	by_cgroup = machine.cgroup < machine.available;
	if (memory->bytes <= (by_cgroup ? machine.cgroup : machine.available))
		return 0;
	kvd_format_bytes(memory->bytes, need, sizeof(need));
	kvd_format_bytes(by_cgroup ? machine.cgroup : machine.available, room, sizeof(room));
	kvd_log_error("pool '%s': needs %s, %s leaves %s; lower 'blocks' or %s", memory->name, need,
		      by_cgroup ? "memory.max of its cgroup" : "this machine", room,
		      by_cgroup ? "raise memory.max" : "free memory");
	return -ENOMEM;
}

/* A mapping that begins at a huge page's boundary, so that both page tables and page cache can use them. */
static int map_aligned(const struct kvd_memory *memory, uint8_t **out)
{
	uint64_t span = memory->bytes + KVD_HUGE_BYTES;
	uint8_t *reserved = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t skip;
	void *mapped;
	int ret;

	if (reserved == MAP_FAILED)
		return -errno;
	skip = (KVD_HUGE_BYTES - (uintptr_t)reserved % KVD_HUGE_BYTES) % KVD_HUGE_BYTES;
	mapped = mmap(reserved + skip, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		      memory->fd, 0);
	ret = mapped == MAP_FAILED ? -errno : 0;
	if (ret < 0) {
		munmap(reserved, span);
		return ret;
	}
	if (skip)
		munmap(reserved, skip);
	if (skip < KVD_HUGE_BYTES)
		munmap(reserved + skip + memory->bytes, KVD_HUGE_BYTES - skip);
	*out = mapped;
	return 0;
}

/* Bytes of the mapping at `memory` that are mapped by huge pages, from its entry in smaps. */
static uint64_t huge_mapped_bytes(const uint8_t *memory)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512];
	bool inside = false;
	unsigned long long start;
	unsigned long long end;
	unsigned long long kib = 0;

	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%llx-%llx ", &start, &end) == 2)
			inside = start == (uintptr_t)memory;
		else if (inside && sscanf(line, "ShmemPmdMapped: %llu kB", &kib) == 1)
			break;
	}
	fclose(file);
	return (uint64_t)kib * 1024;
}

/* The kernel grants transparent huge pages where it finds them. Less than half is not worth the name. */
static void verify_thp(struct kvd_memory *memory, const uint8_t *mapped)
{
	uint64_t huge = huge_mapped_bytes(mapped);
	char text[32];

	if (huge >= memory->bytes)
		return;
	kvd_format_bytes(huge, text, sizeof(text));
	kvd_log_warning("pool '%s': only %s of it came as transparent huge pages; memory is fragmented: "
			"echo 1 > /proc/sys/vm/compact_memory, or set pages = hugetlb",
			memory->name, text);
	if (huge < memory->bytes / 2)
		memory->pages = KVD_PAGES_4K;
}

int kvd_host_populate(struct kvd_memory *memory, _Atomic uint64_t *progress, const _Atomic int *cancel)
{
	struct populate job = {.bytes = memory->bytes, .progress = progress, .cancel = cancel};
	int ret = check_room(memory);

	if (!ret)
		ret = map_aligned(memory, &job.memory);
	if (ret < 0)
		return ret;
	if (memory->pages == KVD_PAGES_THP)
		madvise(job.memory, job.bytes, MADV_HUGEPAGE);
	ret = populate_parallel(&job);
	if (!ret && memory->pages == KVD_PAGES_THP)
		verify_thp(memory, job.memory);
	munmap(job.memory, job.bytes);
	if (ret == -ENOMEM)
		kvd_log_error("pool '%s': the machine ran out of memory while it was filled; lower 'blocks'",
			      memory->name);
	return ret;
}
