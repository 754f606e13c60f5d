/* SPDX-License-Identifier: Apache-2.0 */
#include "map.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client.h"
#include "error.h"

/* Huge pages of shared memory are mapped as such only where the address is a multiple of them. */
#define HUGE_BYTES (2ull << 20)

static int check_segment(int fd, uint64_t bytes, const char *what)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return kvc_fail(KVP_ELAYOUT, "the %s segment is not sealed against shrinking: not mapped",
				what);
	if (fstat(fd, &status))
		return kvc_fail_plain(errno, what);
	if (status.st_size < 0 || (uint64_t)status.st_size < bytes)
		return kvc_fail(KVP_ELAYOUT, "the %s segment has %lld bytes, %llu were announced", what,
				(long long)status.st_size, (unsigned long long)bytes);
	return 0;
}

/* Addresses for `bytes`, aligned for huge pages when there are enough of them. */
static int reserve(uint64_t bytes, const char *what, struct kvc_mapping *out)
{
	uint64_t align = bytes >= HUGE_BYTES ? HUGE_BYTES : KVW_PAGE_BYTES;
	uint64_t total = bytes + (align > KVW_PAGE_BYTES ? align : 0);
	void *memory = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return kvc_fail(errno,
				"%llu bytes of addresses for the %s: %s; is there an address space limit "
				"(ulimit -v)?",
				(unsigned long long)total, what, kvp_error_text(errno));
	out->reserved = memory;
	out->reserved_bytes = total;
	out->memory = (void *)(((uintptr_t)memory + align - 1) & ~(uintptr_t)(align - 1));
	return 0;
}

static int map_there(const struct kvc_mapping *mapping, uint64_t bytes, int protection, int flags, int fd,
		     const char *what)
{
	if (mmap(mapping->memory, bytes, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED)
		return kvc_fail(errno, "mapping %llu bytes of the %s: %s", (unsigned long long)bytes, what,
				kvp_error_text(errno));
	if (madvise(mapping->reserved, mapping->reserved_bytes, MADV_DONTFORK))
		return kvc_fail_plain(errno, what);
	return 0;
}

static int map_fresh(uint64_t bytes, int protection, int flags, int fd, const char *what,
		     struct kvc_mapping *out)
{
	struct kvc_mapping mapping = {0};
	int ret = reserve(bytes, what, &mapping);

	if (!ret)
		ret = map_there(&mapping, bytes, protection, flags, fd, what);
	if (ret)
		kvc_unmap(&mapping);
	else
		*out = mapping;
	return ret;
}

int kvc_map_segment(int fd, uint64_t bytes, int writable, const char *what, struct kvc_mapping *out)
{
	int protection = PROT_READ | (writable ? PROT_WRITE : 0);
	int ret = check_segment(fd, bytes, what);

	return ret ? ret : map_fresh(bytes, protection, MAP_SHARED, fd, what, out);
}

int kvc_map_private(uint64_t bytes, const char *what, struct kvc_mapping *out)
{
	return map_fresh(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, what,
			 out);
}

void kvc_unmap(struct kvc_mapping *mapping)
{
	if (mapping->reserved)
		munmap(mapping->reserved, mapping->reserved_bytes);
	*mapping = (struct kvc_mapping){0};
}
