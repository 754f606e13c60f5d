/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: what each kind lets a client do and not do, and that a failure on the way leaves nothing behind. */
#include "daemon/segment.h"

#include "faults.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 65536u

static const enum kvd_segment_access kinds[] = {KVD_SEGMENT_PRIVATE, KVD_SEGMENT_READ, KVD_SEGMENT_SHARED,
						KVD_SEGMENT_ANSWERS, KVD_SEGMENT_CLIENT};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))
/* Written by the daemon alone. */
static const enum kvd_segment_access ours[] = {KVD_SEGMENT_READ, KVD_SEGMENT_ANSWERS};

static struct kvd_segment make(enum kvd_segment_access access)
{
	struct kvd_segment segment;

	assert_int_equal(kvd_segment_create("kvpool-test", BYTES, access, &segment), 0);
	return segment;
}

static int open_again(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static void segments_are_zeroed_private_inodes_of_their_size(void **state)
{
	(void)state;
	for (unsigned i = 0; i < KINDS; i++) {
		struct kvd_segment segment = make(kinds[i]);
		uint8_t bytes[BYTES];
		struct stat status;

		assert_int_equal(fstat(segment.fd, &status), 0);
		assert_int_equal(status.st_mode & 07777, 0600);
		assert_int_equal(status.st_size, BYTES);
		memset(bytes, 1, sizeof(bytes));
		assert_int_equal(kvd_segment_read(&segment, 0, bytes, BYTES), 0);
		for (unsigned b = 0; b < BYTES; b++)
			assert_int_equal(bytes[b], 0);
		assert_int_equal(fcntl(segment.fd, F_GETFD), FD_CLOEXEC);
		assert_int_equal(fcntl(segment.send_fd, F_GETFD), FD_CLOEXEC);
		assert_int_equal(segment.memory == NULL, kinds[i] == KVD_SEGMENT_CLIENT);
		kvd_segment_destroy(&segment);
	}
}

static void no_descriptor_can_resize_or_unseal(void **state)
{
	(void)state;
	for (unsigned i = 0; i < KINDS; i++) {
		struct kvd_segment segment = make(kinds[i]);
		int again = open_again(segment.send_fd, O_RDWR);

		if (kinds[i] == KVD_SEGMENT_SHARED)
			assert_int_equal(kvd_segment_guard(&segment), 0);

		assert_true(again >= 0);
		assert_int_equal(ftruncate(again, BYTES - 4096), -1);
		assert_int_equal(errno, EPERM);
		assert_int_equal(ftruncate(again, BYTES + 4096), -1);
		assert_int_equal(errno, EPERM);
		assert_int_equal(fcntl(again, F_ADD_SEALS, F_SEAL_WRITE), -1);
		assert_int_equal(errno, EPERM);
		close(again);
		kvd_segment_destroy(&segment);
	}
}

static void is_written_by_the_daemon_alone(enum kvd_segment_access access)
{
	struct kvd_segment segment = make(access);
	uint8_t *seen = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, segment.send_fd, 0);

	assert_ptr_not_equal(seen, MAP_FAILED);
	assert_int_not_equal(segment.send_fd, segment.fd);
	((uint8_t *)segment.memory)[100] = 7;
	assert_int_equal(seen[100], 7);
	assert_int_equal(fcntl(segment.send_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(mprotect(seen, BYTES, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
	munmap(seen, BYTES);
	kvd_segment_destroy(&segment);
}

static void read_segments_are_written_by_the_daemon_alone(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		is_written_by_the_daemon_alone(ours[i]);
}

static void does_not_become_writable(enum kvd_segment_access access)
{
	struct kvd_segment segment = make(access);
	int again = open_again(segment.send_fd, O_RDWR);

	assert_true(again >= 0);
	assert_int_equal(pwrite(again, "x", 1, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_ptr_equal(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(errno, EPERM);
	close(again);
	kvd_segment_destroy(&segment);
}

static void opening_a_read_segment_again_does_not_make_it_writable(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		does_not_become_writable(ours[i]);
}

static void must_be_present(const struct kvd_segment *segment)
{
	unsigned char present[BYTES / 4096];

	assert_int_equal(mincore(segment->memory, BYTES, present), 0);
	for (unsigned i = 0; i < sizeof(present); i++)
		assert_true(present[i] & 1);
}

/*
 * Whoever opens it again for writing may let the kernel fill it for as long as that takes: the pages are
 * there already, so that no store of the daemon has to be let in.
 */
static void answers_are_present_and_stay_so(void **state)
{
	struct kvd_segment segment = make(KVD_SEGMENT_ANSWERS);
	uint8_t *client = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, segment.send_fd, 0);
	int again = open_again(segment.send_fd, O_RDWR);

	(void)state;
	must_be_present(&segment);
	assert_ptr_not_equal(client, MAP_FAILED);
	assert_true(again >= 0);
	assert_int_equal(madvise(client, BYTES, MADV_REMOVE), -1);
	assert_int_equal(fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), -1);
	assert_int_equal(errno, EPERM);
	must_be_present(&segment);
	close(again);
	munmap(client, BYTES);
	kvd_segment_destroy(&segment);
}

static void a_shared_segment_is_present_and_written_by_both(void **state)
{
	struct kvd_segment segment = make(KVD_SEGMENT_SHARED);
	uint8_t *client = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment.send_fd, 0);

	(void)state;
	must_be_present(&segment);
	assert_ptr_not_equal(client, MAP_FAILED);
	client[5] = 9;
	assert_int_equal(((uint8_t *)segment.memory)[5], 9);
	((uint8_t *)segment.memory)[6] = 10;
	assert_int_equal(client[6], 10);
	munmap(client, BYTES);
	kvd_segment_destroy(&segment);
}

/*
 * What was taken away before is back, and what is there stays; the client goes on writing by the mapping that
 * it had.
 */
static void a_guarded_segment_keeps_its_pages(void **state)
{
	struct kvd_segment segment = make(KVD_SEGMENT_SHARED);
	uint8_t *client = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment.send_fd, 0);

	(void)state;
	assert_ptr_not_equal(client, MAP_FAILED);
	assert_int_equal(fallocate(segment.send_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), 0);
	assert_int_equal(kvd_segment_guard(&segment), 0);
	must_be_present(&segment);
	assert_int_equal(fallocate(segment.send_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES),
			 -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(madvise(client, BYTES, MADV_REMOVE), -1);
	client[5] = 9;
	assert_int_equal(((uint8_t *)segment.memory)[5], 9);
	assert_ptr_equal(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment.send_fd, 0),
			 MAP_FAILED);
	munmap(client, BYTES);
	kvd_segment_destroy(&segment);
}

/* Sealed by its client, it can't be guarded. */
static void a_segment_that_its_client_has_sealed_is_not_guarded(void **state)
{
	struct kvd_segment segment = make(KVD_SEGMENT_SHARED);

	(void)state;
	assert_int_equal(fcntl(segment.send_fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	assert_int_equal(kvd_segment_guard(&segment), -EPERM);
	kvd_segment_destroy(&segment);
}

/* msync() of memory that is not mapped answers ENOMEM. */
static void the_mapping_is_not_inherited(void **state)
{
	struct kvd_segment segment = make(KVD_SEGMENT_SHARED);
	int status;
	pid_t child;

	(void)state;
	assert_int_equal(msync(segment.memory, BYTES, MS_ASYNC), 0);
	child = fork();
	if (!child)
		_exit(msync(segment.memory, BYTES, MS_ASYNC) == -1 && errno == ENOMEM ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	kvd_segment_destroy(&segment);
}

static void reads_stay_inside(void **state)
{
	struct kvd_segment segment = make(KVD_SEGMENT_CLIENT);
	char text[8];

	(void)state;
	assert_int_equal(pwrite(segment.send_fd, "kvpool!", 8, BYTES - 8), 8);
	assert_int_equal(kvd_segment_read(&segment, BYTES - 8, text, 8), 0);
	assert_string_equal(text, "kvpool!");
	assert_int_equal(kvd_segment_read(&segment, BYTES - 7, text, 8), -ERANGE);
	assert_int_equal(kvd_segment_read(&segment, BYTES, text, 0), 0);
	assert_int_equal(kvd_segment_read(&segment, BYTES + 1, text, 0), -ERANGE);
	assert_int_equal(kvd_segment_read(&segment, UINT64_MAX, text, 8), -ERANGE);
	assert_int_equal(kvd_segment_read(&segment, 8, text, SIZE_MAX), -ERANGE);
	kvd_segment_destroy(&segment);
}

/* The hole is a client's: zeroes to a reader, and no signal. */
static void a_punched_hole_reads_as_zero(void **state)
{
	struct kvd_segment segment = make(KVD_SEGMENT_CLIENT);
	char text[4] = "abc";

	(void)state;
	assert_int_equal(pwrite(segment.send_fd, text, 4, 4096), 4);
	assert_int_equal(fallocate(segment.send_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096),
			 0);
	assert_int_equal(kvd_segment_read(&segment, 4096, text, 4), 0);
	assert_memory_equal(text, "\0\0\0\0", 4);
	kvd_segment_destroy(&segment);
}

static void odd_sizes_are_refused(void **state)
{
	struct kvd_segment segment = {.fd = 99};

	(void)state;
	assert_int_equal(kvd_segment_create("kvpool-test", 0, KVD_SEGMENT_SHARED, &segment), -EINVAL);
	assert_int_equal(kvd_segment_create("kvpool-test", 4097, KVD_SEGMENT_SHARED, &segment), -EINVAL);
	assert_int_equal(kvd_segment_create("kvpool-test", 1ull << 63, KVD_SEGMENT_CLIENT, &segment),
			 -EINVAL);
	assert_int_equal(segment.fd, 99);
}

static void destroying_nothing_closes_nothing(void **state)
{
	struct kvd_segment zeroed = {0};
	struct kvd_segment segment = make(KVD_SEGMENT_READ);
	int before;

	(void)state;
	kvd_segment_destroy(&segment);
	assert_int_equal(segment.fd, -1);
	before = kvt_count_fds();
	kvd_segment_destroy(&segment);
	kvd_segment_destroy(&zeroed);
	assert_int_equal(kvt_count_fds(), before);
}

/* Mappings of our memfds that this process has. */
static int count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	int count = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, "memfd:kvpool-test") != NULL;
	fclose(file);
	return count;
}

/* EIO: no path treats it as a reason to try otherwise. */
static unsigned fail_each_call(enum kvd_segment_access access)
{
	int fds = kvt_count_fds();
	unsigned n = 1;

	for (;; n++) {
		struct kvd_segment segment = {.fd = 99};
		int ret;

		faults_arm(n, EIO);
		ret = kvd_segment_create("kvpool-test", BYTES, access, &segment);
		if (!faults_hit()) {
			assert_int_equal(ret, 0);
			kvd_segment_destroy(&segment);
			break;
		}
		assert_int_equal(ret, -EIO);
		assert_int_equal(segment.fd, 99);
		assert_int_equal(kvt_count_fds(), fds);
		assert_int_equal(count_mappings(), 0);
	}
	assert_int_equal(kvt_count_fds(), fds);
	assert_int_equal(count_mappings(), 0);
	return n - 1;
}

static void a_failure_of_any_call_leaves_nothing(void **state)
{
	(void)state;
	/* memfd_create, fchmod, ftruncate, fcntl; mmap and madvise where it is mapped; open where it is sent read-only. */
	assert_int_equal(fail_each_call(KVD_SEGMENT_CLIENT), 4);
	assert_int_equal(fail_each_call(KVD_SEGMENT_PRIVATE), 6);
	assert_int_equal(fail_each_call(KVD_SEGMENT_SHARED), 7);
	assert_int_equal(fail_each_call(KVD_SEGMENT_READ), 7);
	assert_int_equal(fail_each_call(KVD_SEGMENT_ANSWERS), 8);
}

static void old_kernels_without_noexec_seal_are_served(void **state)
{
	struct kvd_segment segment;

	(void)state;
	faults_arm(1, EINVAL);
	assert_int_equal(kvd_segment_create("kvpool-test", BYTES, KVD_SEGMENT_SHARED, &segment), 0);
	assert_true(faults_hit());
	kvd_segment_destroy(&segment);
}

/* Its client may have written to it already. */
static void old_kernels_guard_what_is_there(void **state)
{
	struct kvd_segment segment = make(KVD_SEGMENT_SHARED);
	uint8_t *client = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment.send_fd, 0);

	(void)state;
	assert_ptr_not_equal(client, MAP_FAILED);
	client[0] = 7;
	client[BYTES - 1] = 9;
	/* The second of fcntl and madvise. */
	faults_arm(2, EINVAL);
	assert_int_equal(kvd_segment_guard(&segment), 0);
	assert_true(faults_hit());
	assert_int_equal(client[0], 7);
	assert_int_equal(client[BYTES - 1], 9);
	must_be_present(&segment);
	munmap(client, BYTES);
	kvd_segment_destroy(&segment);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(segments_are_zeroed_private_inodes_of_their_size),
		cmocka_unit_test(no_descriptor_can_resize_or_unseal),
		cmocka_unit_test(read_segments_are_written_by_the_daemon_alone),
		cmocka_unit_test(opening_a_read_segment_again_does_not_make_it_writable),
		cmocka_unit_test(a_shared_segment_is_present_and_written_by_both),
		cmocka_unit_test(a_guarded_segment_keeps_its_pages),
		cmocka_unit_test(a_segment_that_its_client_has_sealed_is_not_guarded),
		cmocka_unit_test(the_mapping_is_not_inherited),
		cmocka_unit_test(answers_are_present_and_stay_so),
		cmocka_unit_test(reads_stay_inside),
		cmocka_unit_test(a_punched_hole_reads_as_zero),
		cmocka_unit_test(odd_sizes_are_refused),
		cmocka_unit_test(destroying_nothing_closes_nothing),
		cmocka_unit_test(a_failure_of_any_call_leaves_nothing),
		cmocka_unit_test(old_kernels_without_noexec_seal_are_served),
		cmocka_unit_test(old_kernels_guard_what_is_there),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
