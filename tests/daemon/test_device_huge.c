/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of huge pages: reserved when they are made, really huge when they are filled, and harmless when a client punches holes.
 * Skipped where the machine has none (tests/with_hugepages.sh provides them).
 */
#include "daemon/device.h"
#include "daemon/machine.h"

#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct kvd_device_ops *ops = &kvd_device_host;
static const _Atomic int never;

static struct kvd_memory *make(enum kvd_pages pages, uint64_t bytes)
{
	struct kvd_memory_params params = {.name = "huge", .bytes = bytes, .pages = pages};
	struct kvd_memory *memory;

	assert_int_equal(ops->create(&params, &memory), 0);
	return memory;
}

static void fill(struct kvd_memory *memory)
{
	_Atomic uint64_t progress = 0;

	assert_int_equal(ops->populate(memory, &progress, &never), 0);
	assert_int_equal(progress, ops->bytes(memory));
}

static uint64_t unpromised(void)
{
	struct kvd_machine_huge huge;

	kvd_machine_huge("", &huge);
	return huge.unpromised;
}

/* What a client does between the daemon's mapping and its copy. */
static void (*before_pread)(void);

ssize_t __real_pread(int fd, void *out, size_t length, off_t offset);
ssize_t __wrap_pread(int fd, void *out, size_t length, off_t offset);
ssize_t __wrap_pread(int fd, void *out, size_t length, off_t offset)
{
	void (*act)(void) = before_pread;

	before_pread = NULL;
	if (act)
		act();
	return __real_pread(fd, out, length, offset);
}

static void pages_are_promised_when_the_pool_is_made(void **state)
{
	uint64_t before = unpromised();
	struct kvd_memory *memory = make(KVD_PAGES_HUGETLB, 3 * KVD_HUGE_BYTES + 1);

	(void)state;
	assert_int_equal(ops->bytes(memory), 4 * KVD_HUGE_BYTES);
	assert_int_equal(unpromised(), before - 4);
	fill(memory);
	assert_int_equal(unpromised(), before - 4);
	ops->destroy(memory);
	assert_int_equal(unpromised(), before);
}

static void automatic_pages_are_huge_while_they_last(void **state)
{
	uint64_t pages = unpromised();
	struct kvd_memory *all = make(KVD_PAGES_AUTO, pages * KVD_HUGE_BYTES);
	struct kvd_memory *one = make(KVD_PAGES_AUTO, KVD_HUGE_BYTES);

	(void)state;
	assert_string_equal(ops->backing(all), "hugetlb");
	assert_string_not_equal(ops->backing(one), "hugetlb");
	ops->destroy(one);
	ops->destroy(all);
}

static void filled_transparent_pages_are_huge(void **state)
{
	struct kvd_memory *memory = make(KVD_PAGES_THP, 64 * KVD_HUGE_BYTES);

	(void)state;
	fill(memory);
	assert_string_equal(ops->backing(memory), "thp");
	ops->destroy(memory);
}

/* A client's hole gives its page away; with none left the next touch by load would be a SIGBUS. */
static void writing_into_a_hole_without_pages_is_an_error_and_no_signal(void **state)
{
	uint64_t pages = unpromised();
	struct kvd_memory *pool = make(KVD_PAGES_HUGETLB, 2 * KVD_HUGE_BYTES);
	struct kvd_memory *rest = make(KVD_PAGES_HUGETLB, (pages - 2) * KVD_HUGE_BYTES);
	struct kvd_memory *taken;
	char text[4] = "abc";
	int fd;

	(void)state;
	fill(pool);
	fill(rest);
	assert_int_equal(ops->session_fd(pool, 1, &fd), 0);
	assert_int_equal(ops->write(pool, KVD_HUGE_BYTES, text, 4), 0);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)KVD_HUGE_BYTES,
				   (off_t)KVD_HUGE_BYTES),
			 0);
	taken = make(KVD_PAGES_HUGETLB, KVD_HUGE_BYTES);
	fill(taken);
	assert_int_equal(ops->write(pool, KVD_HUGE_BYTES, text, 4), -EIO);
	assert_int_equal(ops->read(pool, KVD_HUGE_BYTES, text, 4), 0);
	assert_memory_equal(text, "\0\0\0\0", 4);
	close(fd);
	ops->destroy(taken);
	ops->destroy(rest);
	ops->destroy(pool);
}

static int hole_fd;
static struct kvd_memory *taker;

/* Gives the page of the second block away, and lets another pool have it. */
static void punch_and_take(void)
{
	assert_int_equal(fallocate(hole_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)KVD_HUGE_BYTES,
				   (off_t)KVD_HUGE_BYTES),
			 0);
	taker = make(KVD_PAGES_HUGETLB, KVD_HUGE_BYTES);
	fill(taker);
}

static void a_hole_punched_during_a_write_is_an_error_and_no_signal(void **state)
{
	uint64_t pages = unpromised();
	struct kvd_memory *pool = make(KVD_PAGES_HUGETLB, 2 * KVD_HUGE_BYTES);
	struct kvd_memory *rest = make(KVD_PAGES_HUGETLB, (pages - 2) * KVD_HUGE_BYTES);

	(void)state;
	fill(pool);
	fill(rest);
	assert_int_equal(ops->session_fd(pool, 1, &hole_fd), 0);
	before_pread = punch_and_take;
	assert_int_equal(ops->write(pool, KVD_HUGE_BYTES, "abc", 4), -EIO);
	assert_null(before_pread);
	close(hole_fd);
	ops->destroy(taker);
	ops->destroy(rest);
	ops->destroy(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_are_promised_when_the_pool_is_made),
		cmocka_unit_test(automatic_pages_are_huge_while_they_last),
		cmocka_unit_test(filled_transparent_pages_are_huge),
		cmocka_unit_test(writing_into_a_hole_without_pages_is_an_error_and_no_signal),
		cmocka_unit_test(a_hole_punched_during_a_write_is_an_error_and_no_signal),
	};
	char word[32];

	kvt_watchdog(120);
	kvd_machine_shmem_thp("", word, sizeof(word));
	if (unpromised() < 8 || !kvd_machine_thp_granted(word)) {
		fprintf(stderr, "skipped: needs 8 free huge pages and shmem_enabled = advise\n");
		return KVT_SKIP;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
