/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory: one memfd a piece, whose name says which one it is. So a descriptor that comes from
 * elsewhere can be recognised, and one that was closed and given to another file is not taken for it.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAME_FORMAT "fakecuda-%llu"
/* New memory holds garbage up to this size; beyond it, pages stay untouched. */
#define GARBAGE_BYTES (256u << 10)

static struct fake_physical *all;

void fake_physical_name(uint64_t id, char *out, size_t bytes)
{
	snprintf(out, bytes, NAME_FORMAT, (unsigned long long)id);
}

static void fill(int fd, uint64_t offset, uint64_t bytes, int value)
{
	static char block[65536];

	memset(block, value, sizeof(block));
	while (bytes) {
		size_t size = bytes < sizeof(block) ? bytes : sizeof(block);

		if (pwrite(fd, block, size, (off_t)offset) != (ssize_t)size)
			return;
		offset += size;
		bytes -= size;
	}
}

static struct fake_physical *add(int fd, uint64_t id, int device, uint64_t bytes)
{
	struct fake_physical *physical = calloc(1, sizeof(*physical));

	if (!physical)
		abort();
	*physical = (struct fake_physical){
		.id = id, .bytes = bytes, .fd = fd, .device = device, .references = 1, .next = all};
	all = physical;
	fake_late_memory(physical);
	return physical;
}

unsigned fake_physical_create(int device, uint64_t bytes, struct fake_physical **out)
{
	char name[64];
	uint64_t id;
	unsigned result = fake_allocation_add(device, bytes, &id);
	int fd;

	if (result)
		return result;
	fake_physical_name(id, name, sizeof(name));
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
		fake_allocation_drop(id);
		return KVW_CUDA_OPERATING_SYSTEM;
	}
	fill(fd, 0, bytes < GARBAGE_BYTES ? bytes : GARBAGE_BYTES, 0xa5);
	*out = add(fd, id, device, bytes);
	return 0;
}

static bool id_of(int fd, uint64_t *out)
{
	unsigned long long id;
	char path[64];
	char target[128];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		return false;
	target[length] = 0;
	if (sscanf(target, "/memfd:" NAME_FORMAT, &id) != 1)
		return false;
	*out = id;
	return true;
}

static struct fake_physical *find(uint64_t id)
{
	struct fake_physical *physical = all;

	while (physical && physical->id != id)
		physical = physical->next;
	return physical;
}

unsigned fake_physical_adopt(int fd, struct fake_physical **out)
{
	struct fake_physical *known;
	uint64_t bytes;
	uint64_t id;
	int device;

	if (!id_of(fd, &id))
		return KVW_CUDA_INVALID_HANDLE;
	known = find(id);
	if (known) {
		known->references++;
		close(fd);
		*out = known;
		return 0;
	}
	if (!fake_allocation_hold(id, &device, &bytes))
		return KVW_CUDA_INVALID_HANDLE;
	*out = add(fd, id, device, bytes);
	return 0;
}

void fake_physical_drop(struct fake_physical *physical)
{
	struct fake_physical **at = &all;

	if (--physical->references)
		return;
	while (*at != physical)
		at = &(*at)->next;
	*at = physical->next;
	fake_late_forget(physical);
	fake_allocation_drop(physical->id);
	close(physical->fd);
	free(physical);
}

void fake_physical_poison(struct fake_physical *physical)
{
	off_t from = lseek(physical->fd, 0, SEEK_DATA);

	while (from >= 0) {
		off_t to = lseek(physical->fd, from, SEEK_HOLE);

		if (to <= from)
			return;
		fill(physical->fd, (uint64_t)from, (uint64_t)(to - from), 0xdb);
		from = lseek(physical->fd, to, SEEK_DATA);
	}
}
