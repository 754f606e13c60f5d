/* SPDX-License-Identifier: Apache-2.0 */
/* What only the host device does: seals, hostile locks, shortages with their remedies, failures on the way. */
#include "daemon/device.h"
#include "daemon/machine.h"

#include "captured.h"
#include "faults.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES (1ull << 20)
/* 2,097,152 pages, and those that others have now. */
#define REMEDY "to have them: sysctl vm.nr_hugepages=2097"

static const struct kvd_device_ops *ops = &kvd_device_host;
static const _Atomic int never;

static struct kvd_memory *make(enum kvd_pages pages, uint64_t bytes)
{
	struct kvd_memory_params params = {.name = "test", .bytes = bytes, .pages = pages};
	struct kvd_memory *memory;

	assert_int_equal(ops->create(&params, &memory), 0);
	return memory;
}

static int session(struct kvd_memory *memory, uint64_t lock_byte)
{
	int fd;

	assert_int_equal(ops->session_fd(memory, lock_byte, &fd), 0);
	return fd;
}

static int lock_range(int fd, int command, short type, off_t start, off_t length)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};

	return fcntl(fd, command, &lock) < 0 ? -errno : 0;
}

static void a_client_can_neither_resize_nor_unseal_nor_open_to_others(void **state)
{
	struct kvd_memory *memory = make(KVD_PAGES_4K, BYTES);
	int fd = session(memory, 1);
	struct stat status;

	(void)state;
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0600);
	assert_int_equal((uint64_t)status.st_size, ops->bytes(memory));
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, (off_t)(2 * BYTES)), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(errno, EPERM);
	close(fd);
	ops->destroy(memory);
}

static void a_hostile_client_can_set_no_write_lock(void **state)
{
	struct kvd_memory *memory = make(KVD_PAGES_4K, BYTES);
	int hostile = session(memory, 1);

	(void)state;
	assert_int_equal(lock_range(hostile, F_OFD_SETLK, F_WRLCK, 0, 0), -EAGAIN);
	assert_int_equal(lock_range(hostile, F_OFD_SETLK, F_WRLCK, 2, 1), -EAGAIN);
	assert_int_equal(lock_range(hostile, F_SETLK, F_WRLCK, 1ll << 40, 1), -EAGAIN);
	close(hostile);
	ops->destroy(memory);
}

static void hostile_read_locks_keep_nobody_out_and_only_delay_the_proof(void **state)
{
	struct kvd_memory *memory = make(KVD_PAGES_4K, BYTES);
	int hostile = session(memory, 1);
	int victim;

	(void)state;
	assert_int_equal(lock_range(hostile, F_OFD_SETLK, F_RDLCK, 0, 0), 0);
	victim = session(memory, 2);
	close(victim);
	assert_int_equal(ops->proved_gone(memory, 2), 0);
	close(hostile);
	assert_int_equal(ops->proved_gone(memory, 2), 1);
	assert_int_equal(ops->proved_gone(memory, 1), 1);
	ops->destroy(memory);
}

static void a_hostile_client_can_unlock_no_byte_but_its_own(void **state)
{
	struct kvd_memory *memory = make(KVD_PAGES_4K, BYTES);
	int victim = session(memory, 2);
	int hostile = session(memory, 1);

	(void)state;
	assert_int_equal(lock_range(hostile, F_OFD_SETLK, F_UNLCK, 0, 0), 0);
	assert_int_equal(ops->proved_gone(memory, 1), 1);
	assert_int_equal(ops->proved_gone(memory, 2), 0);
	assert_int_equal(lock_range(hostile, F_OFD_SETLK, F_WRLCK, 0, 0), -EAGAIN);
	close(hostile);
	close(victim);
	ops->destroy(memory);
}

static void automatic_pages_fall_back_and_the_log_says_what_to_change(void **state)
{
	struct kvd_memory_params params = {.name = "vast", .bytes = 1ull << 42, .pages = KVD_PAGES_AUTO};
	struct kvd_memory *memory;
	char log[2048];
	char word[32];

	(void)state;
	kvd_machine_shmem_thp("", word, sizeof(word));
	captured_start();
	assert_int_equal(ops->create(&params, &memory), 0);
	captured_end(log, sizeof(log));
	assert_non_null(strstr(log, "pool 'vast': needs 2097152 huge pages of 2 MiB"));
	assert_non_null(strstr(log, REMEDY));
	if (kvd_machine_thp_granted(word)) {
		assert_string_equal(ops->backing(memory), "thp");
	} else {
		assert_string_equal(ops->backing(memory), "4k");
		assert_non_null(strstr(log, "shmem_enabled is 'never'"));
		assert_non_null(
			strstr(log, "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"));
	}
	ops->destroy(memory);
}

static void huge_pages_that_are_not_there_are_refused_with_the_number(void **state)
{
	struct kvd_memory_params params = {.name = "vast", .bytes = 1ull << 42, .pages = KVD_PAGES_HUGETLB};
	struct kvd_memory *memory = NULL;
	int before = kvt_count_fds();
	char log[2048];

	(void)state;
	captured_start();
	assert_int_equal(ops->create(&params, &memory), -ENOMEM);
	captured_end(log, sizeof(log));
	assert_non_null(strstr(log, "kvpoold: error: pool 'vast': needs 2097152 huge pages of 2 MiB"));
	assert_non_null(strstr(log, REMEDY));
	assert_null(memory);
	assert_int_equal(kvt_count_fds(), before);
}

/* Nothing is touched: the kernel's killer would be the other answer. */
static void more_than_the_machine_has_is_refused_before_it_is_touched(void **state)
{
	struct kvd_machine_memory machine;
	struct kvd_memory *memory;
	_Atomic uint64_t progress = 0;
	struct stat status;
	char log[2048];
	int fd;

	(void)state;
	kvd_machine_memory("", &machine);
	assert_true(machine.available != UINT64_MAX);
	memory = make(KVD_PAGES_4K, machine.available + (4ull << 30));
	fd = session(memory, 1);
	captured_start();
	assert_int_equal(ops->populate(memory, &progress, &never), -ENOMEM);
	captured_end(log, sizeof(log));
	assert_non_null(strstr(log, "pool 'test': needs "));
	assert_non_null(strstr(log, "lower 'blocks'"));
	assert_int_equal(progress, 0);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_blocks, 0);
	close(fd);
	ops->destroy(memory);
}

/* 200 MiB are four chunks: more than one thread has work. */
static void every_page_is_present_after_filling(void **state)
{
	struct kvd_memory *memory = make(KVD_PAGES_4K, (200ull << 20) + 4096);
	_Atomic uint64_t progress = 0;
	struct stat status;
	int fd = session(memory, 1);

	(void)state;
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_blocks, 0);
	assert_int_equal(ops->populate(memory, &progress, &never), 0);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal((uint64_t)status.st_blocks * 512, ops->bytes(memory));
	assert_int_equal(progress, ops->bytes(memory));
	close(fd);
	ops->destroy(memory);
}

static int count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	int count = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "memfd:kvpool-pool") != NULL;
	fclose(file);
	return count;
}

static void the_daemon_keeps_no_mapping(void **state)
{
	struct kvd_memory *memory = make(KVD_PAGES_AUTO, BYTES);
	_Atomic uint64_t progress = 0;

	(void)state;
	assert_int_equal(ops->populate(memory, &progress, &never), 0);
	assert_int_equal(ops->write(memory, 10, "x", 1), 0);
	assert_int_equal(count_mappings(), 0);
	ops->destroy(memory);
}

/* The whole life of a pool; false when it could not go on. */
static bool live(int *out_ret)
{
	struct kvd_memory_params params = {.name = "test", .bytes = BYTES, .pages = KVD_PAGES_4K};
	_Atomic uint64_t progress = 0;
	struct kvd_memory *memory;
	int fd = -1;
	int ret = ops->create(&params, &memory);

	if (!ret) {
		ret = ops->populate(memory, &progress, &never);
		if (!ret)
			ret = ops->session_fd(memory, 1, &fd);
		if (!ret)
			ret = ops->proved_gone(memory, 1);
		if (fd >= 0)
			close(fd);
		ops->destroy(memory);
	}
	*out_ret = ret;
	return ret == 0;
}

static void a_failure_of_any_call_leaves_nothing(void **state)
{
	int fds = kvt_count_fds();
	unsigned n = 1;
	int ret;

	(void)state;
	captured_start();
	for (;; n++) {
		bool hit;

		faults_arm(n, EIO);
		live(&ret);
		hit = faults_hit();
		assert_int_equal(kvt_count_fds(), fds + 1);
		assert_int_equal(count_mappings(), 0);
		if (!hit)
			break;
		assert_true(ret == -EIO || ret == -ENOMEM);
	}
	assert_int_equal(ret, 0);
	captured_end((char[64]){0}, 64);
	/* calloc, memfd_create, fchmod, ftruncate, seal, guard; mmap twice, madvise; open, lock; question. */
	assert_int_equal(n - 1, 12);
	assert_int_equal(kvt_count_fds(), fds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_client_can_neither_resize_nor_unseal_nor_open_to_others),
		cmocka_unit_test(a_hostile_client_can_set_no_write_lock),
		cmocka_unit_test(hostile_read_locks_keep_nobody_out_and_only_delay_the_proof),
		cmocka_unit_test(a_hostile_client_can_unlock_no_byte_but_its_own),
		cmocka_unit_test(automatic_pages_fall_back_and_the_log_says_what_to_change),
		cmocka_unit_test(huge_pages_that_are_not_there_are_refused_with_the_number),
		cmocka_unit_test(more_than_the_machine_has_is_refused_before_it_is_touched),
		cmocka_unit_test(every_page_is_present_after_filling),
		cmocka_unit_test(the_daemon_keeps_no_mapping),
		cmocka_unit_test(a_failure_of_any_call_leaves_nothing),
	};

	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
