/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools in host memory: one sealed memfd a shard.
 *
 * Proof of gone. A session's descriptor is an open file description of its own with an OFD read lock on the session's byte. The kernel drops the
 * lock when the last descriptor *and* the last mapping made from it are gone, in whatever process they are. The daemon's
 * own description holds a read lock on the whole range (the guard), and asks through it whether a write lock on that byte would
 * meet another one; its own guard does not count for it.
 *
 * What a hostile client can do, since it can set locks through its own writable descriptor:
 *   - Write locks: never, anywhere; the guard is in the way. So nobody can keep a session from getting its lock.
 *   - Read locks on bytes of others: those look alive until the hostile one is gone too. This delays when a dead session's blocks become
 *     free; it frees nothing early. The kernel walks locks one by one: 20,000 of them (18 s of a core to set) made the
 *     question take 1 ms, 30,000 31 ms; proofs.h spaces the questions.
 *   - Unlock or narrow its own byte: its own blocks may be granted again while it still maps them. It could write to
 *     every block of the pool anyway (who maps a pool can spoil its bytes, never its books); others' proofs are untouched.
 *
 * The daemon keeps no mapping: a hole that a client punches into a huge-page pool would be its SIGBUS.
 */
#include "device_host.h"

#include "lock_byte.h"
#include "log.h"
#include "machine.h"
#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static int set_guard(int fd)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_SETLK, &lock) < 0 ? -errno : 0;
}

/* Reserves the pages of a huge-page memfd: that is what mmap() does, and the promise outlives the mapping. */
static int reserve_huge(int fd, uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return -errno;
	munmap(memory, bytes);
	return 0;
}

static int make_fd(const struct kvd_memory *memory, int *out)
{
	unsigned flags = memory->pages == KVD_PAGES_HUGETLB ? MFD_HUGETLB | MFD_HUGE_2MB : 0;
	char name[sizeof(memory->name) + 16];
	int fd;
	int ret;

	snprintf(name, sizeof(name), "kvpool-pool-%s", memory->name);
	ret = kvd_memfd_create(name, flags, memory->bytes, &fd);
	if (ret < 0)
		return ret;
	if (memory->pages == KVD_PAGES_HUGETLB)
		ret = reserve_huge(fd, memory->bytes);
	if (!ret)
		ret = kvd_memfd_seal(fd, 0);
	if (!ret)
		ret = set_guard(fd);
	if (ret < 0) {
		close(fd);
		return ret;
	}
	*out = fd;
	return 0;
}

static void log_huge_shortage(enum kvd_log_level level, const struct kvd_memory *memory, int error)
{
	uint64_t need = memory->bytes / KVD_HUGE_BYTES;
	struct kvd_machine_huge huge;

	kvd_machine_huge("", &huge);
	if (!huge.supported || (error != -ENOMEM && error != -ENOSPC)) {
		kvd_log(level, "pool '%s': no huge pages of 2 MiB on this machine (%s)", memory->name,
			strerror(-error));
		return;
	}
	kvd_log(level,
		"pool '%s': needs %llu huge pages of 2 MiB, %llu of %llu are free; to have them: "
		"sysctl vm.nr_hugepages=%llu",
		memory->name, (unsigned long long)need, (unsigned long long)huge.unpromised,
		(unsigned long long)huge.total,
		(unsigned long long)(huge.total + (need > huge.unpromised ? need - huge.unpromised : 0)));
}

static int try_huge(struct kvd_memory *memory, uint64_t bytes, enum kvd_log_level level)
{
	int ret;

	memory->pages = KVD_PAGES_HUGETLB;
	memory->bytes = round_up(bytes, KVD_HUGE_BYTES);
	ret = make_fd(memory, &memory->fd);
	if (ret < 0)
		log_huge_shortage(level, memory, ret);
	return ret;
}

static int try_thp(struct kvd_memory *memory, uint64_t bytes, enum kvd_log_level level)
{
	char word[32];

	kvd_machine_shmem_thp("", word, sizeof(word));
	if (!kvd_machine_thp_granted(word)) {
		kvd_log(level,
			"pool '%s': no transparent huge pages for shared memory (shmem_enabled is '%s'); to "
			"have them: "
			"echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
			memory->name, word[0] ? word : "absent");
		return -EOPNOTSUPP;
	}
	memory->pages = KVD_PAGES_THP;
	memory->bytes = round_up(bytes, KVD_HUGE_BYTES);
	return make_fd(memory, &memory->fd);
}

static int try_small(struct kvd_memory *memory, uint64_t bytes)
{
	memory->pages = KVD_PAGES_4K;
	memory->bytes = round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
	return make_fd(memory, &memory->fd);
}

static int make(struct kvd_memory *memory, const struct kvd_memory_params *params)
{
	int ret;

	switch (params->pages) {
	case KVD_PAGES_HUGETLB:
		return try_huge(memory, params->bytes, KVD_LOG_ERROR);
	case KVD_PAGES_THP:
		return try_thp(memory, params->bytes, KVD_LOG_ERROR);
	case KVD_PAGES_4K:
		return try_small(memory, params->bytes);
	case KVD_PAGES_AUTO:
		ret = try_huge(memory, params->bytes, KVD_LOG_INFO);
		if (ret < 0)
			ret = try_thp(memory, params->bytes, KVD_LOG_INFO);
		return ret < 0 ? try_small(memory, params->bytes) : ret;
	default:
		return -EINVAL;
	}
}

static int create(const struct kvd_memory_params *params, struct kvd_memory **out)
{
	struct kvd_memory *memory;
	int ret;

	if (!params->bytes || params->bytes > INT64_MAX - KVD_HUGE_BYTES)
		return -EINVAL;
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return -ENOMEM;
	snprintf(memory->name, sizeof(memory->name), "%s", params->name);
	ret = make(memory, params);
	if (ret < 0) {
		kvd_log_error("pool '%s': no memory of %llu bytes: %s", memory->name,
			      (unsigned long long)params->bytes, strerror(-ret));
		free(memory);
		return ret;
	}
	*out = memory;
	return 0;
}

static void destroy(struct kvd_memory *memory)
{
	if (!memory)
		return;
	close(memory->fd);
	free(memory);
}

static const char *backing(const struct kvd_memory *memory)
{
	enum kvd_pages pages = memory->pages;

	switch (pages) {
	case KVD_PAGES_HUGETLB:
		return "hugetlb";
	case KVD_PAGES_THP:
		return "thp";
	default:
		return "4k";
	}
}

static int session_fd(struct kvd_memory *memory, uint64_t lock_byte, int *out_fd)
{
	return kvd_lock_byte_open(memory->fd, lock_byte, out_fd);
}

static int proved_gone(struct kvd_memory *memory, uint64_t lock_byte)
{
	return kvd_lock_byte_free(memory->fd, lock_byte);
}

static int read_bytes(struct kvd_memory *memory, uint64_t offset, void *out, size_t length)
{
	return kvd_memfd_read(memory->fd, memory->bytes, offset, out, length);
}

/*
 * A huge-page file has no write(2). The bytes go through a small memfd: pread() from that into a mapping is copied by the kernel, which
 * answers EFAULT where the CPU would raise SIGBUS.
 */
static int copy_in(int fd, uint64_t offset, int from_fd, size_t length)
{
	uint64_t start = offset / KVD_HUGE_BYTES * KVD_HUGE_BYTES;
	size_t span = round_up(offset + length, KVD_HUGE_BYTES) - start;
	uint8_t *memory = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)start);
	ssize_t moved;

	if (memory == MAP_FAILED)
		return -EIO;
	moved = pread(from_fd, memory + (offset - start), length, 0);
	munmap(memory, span);
	return moved == (ssize_t)length ? 0 : -EIO;
}

static int write_huge(struct kvd_memory *memory, uint64_t offset, const void *bytes, size_t length)
{
	int scratch;
	int ret;

	if (offset > memory->bytes || length > memory->bytes - offset)
		return -ERANGE;
	if (!length)
		return 0;
	ret = kvd_memfd_create("kvpool-scratch", 0, length, &scratch);
	if (ret < 0)
		return -EIO;
	ret = kvd_memfd_write(scratch, length, 0, bytes, length);
	if (!ret)
		ret = copy_in(memory->fd, offset, scratch, length);
	close(scratch);
	return ret;
}

static int write_bytes(struct kvd_memory *memory, uint64_t offset, const void *bytes, size_t length)
{
	if (memory->pages == KVD_PAGES_HUGETLB)
		return write_huge(memory, offset, bytes, length);
	return kvd_memfd_write(memory->fd, memory->bytes, offset, bytes, length);
}

static uint64_t bytes_of(const struct kvd_memory *memory)
{
	return memory->bytes;
}

const struct kvd_device_ops kvd_device_host = {
	.name = "host",
	.create = create,
	.destroy = destroy,
	.backing = backing,
	.populate = kvd_host_populate,
	.session_fd = session_fd,
	.proved_gone = proved_gone,
	.read = read_bytes,
	.write = write_bytes,
	.bytes = bytes_of,
};
