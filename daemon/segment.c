/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: made, mapped, then sealed. The order matters: F_SEAL_FUTURE_WRITE spares only mappings that were there before it, and it
 * holds for a process of our own uid too, which could open a read-only descriptor again for writing.
 */
#include "segment.h"

#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

/* Changes nothing: a client may write to the page meanwhile. */
static void touch_pages(uint8_t *memory, size_t bytes)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	size_t at;

	for (at = 0; at < bytes; at += page_bytes)
		atomic_fetch_or_explicit((_Atomic uint8_t *)(memory + at), 0, memory_order_relaxed);
}

/* A page that can't be had is an error here, and not a SIGBUS later. Kernels before 5.14 can't say so: there the pages are touched. */
static int populate(void *memory, size_t bytes)
{
	if (!madvise(memory, bytes, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return errno == EFAULT ? -ENOMEM : -errno;
	touch_pages(memory, bytes);
	return 0;
}

static int map(int fd, uint64_t bytes, enum kvd_segment_access access, void **out)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int ret = 0;

	if (memory == MAP_FAILED)
		return -errno;
	if (madvise(memory, bytes, MADV_DONTFORK) < 0)
		ret = -errno;
	if (!ret && (access == KVD_SEGMENT_SHARED || access == KVD_SEGMENT_ANSWERS))
		ret = populate(memory, bytes);
	if (ret < 0) {
		munmap(memory, bytes);
		return ret;
	}
	*out = memory;
	return 0;
}

static int seal(struct kvd_segment *segment, enum kvd_segment_access access)
{
	bool ours = access == KVD_SEGMENT_READ || access == KVD_SEGMENT_ANSWERS;
	int ret = access == KVD_SEGMENT_SHARED ? kvd_memfd_seal_size(segment->fd)
					       : kvd_memfd_seal(segment->fd, ours ? F_SEAL_FUTURE_WRITE : 0);

	if (!ret && ours)
		ret = kvd_memfd_reopen(segment->fd, O_RDONLY, &segment->send_fd);
	return ret;
}

int kvd_segment_create(const char *name, uint64_t bytes, enum kvd_segment_access access,
		       struct kvd_segment *out)
{
	struct kvd_segment segment = {.bytes = bytes};
	int ret;

	if (bytes % (uint64_t)sysconf(_SC_PAGESIZE))
		return -EINVAL;
	ret = kvd_memfd_create(name, 0, bytes, &segment.fd);
	if (ret < 0)
		return ret;
	segment.send_fd = segment.fd;
	if (access != KVD_SEGMENT_CLIENT)
		ret = map(segment.fd, bytes, access, &segment.memory);
	if (!ret)
		ret = seal(&segment, access);
	if (ret < 0) {
		kvd_segment_destroy(&segment);
		return ret;
	}
	*out = segment;
	return 0;
}

int kvd_segment_guard(const struct kvd_segment *segment)
{
	int ret = kvd_memfd_seal(segment->fd, F_SEAL_FUTURE_WRITE);

	return ret ? ret : populate(segment->memory, segment->bytes);
}

void kvd_segment_destroy(struct kvd_segment *segment)
{
	if (!segment->bytes)
		return;
	if (segment->memory)
		munmap(segment->memory, segment->bytes);
	if (segment->send_fd != segment->fd)
		close(segment->send_fd);
	close(segment->fd);
	*segment = (struct kvd_segment){.fd = -1, .send_fd = -1};
}

int kvd_segment_read(const struct kvd_segment *segment, uint64_t offset, void *out, size_t length)
{
	return kvd_memfd_read(segment->fd, segment->bytes, offset, out, length);
}
