/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite of devices: memory, bounds, descriptors, and the proof that a session is gone. */
#include "device_conform.h"

#include "holder.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASKED_BYTES ((5ull << 20) + 12345)

static const struct device_case *device;
static struct kvd_memory *memory;
static const _Atomic int never;

static int make_memory(enum kvd_pages pages)
{
	struct kvd_memory_params params = {.name = "conform", .bytes = ASKED_BYTES, .pages = pages};

	return device->ops->create(&params, &memory);
}

static int setup(void **state)
{
	(void)state;
	return make_memory(device->pages);
}

static int teardown(void **state)
{
	(void)state;
	device->ops->destroy(memory);
	memory = NULL;
	return 0;
}

static uint64_t bytes_of(void)
{
	return device->ops->bytes(memory);
}

static int session(uint64_t lock_byte)
{
	int fd = -1;

	assert_int_equal(device->ops->session_fd(memory, lock_byte, &fd), 0);
	assert_true(fd >= 0);
	return fd;
}

static void assert_gone(uint64_t lock_byte, int expected)
{
	assert_int_equal(device->ops->proved_gone(memory, lock_byte), expected);
}

/* The kernel closes a killed process's files a little after its parent may know. */
static bool is_gone(void *arg)
{
	int ret = device->ops->proved_gone(memory, *(uint64_t *)arg);

	assert_true(ret >= 0);
	return ret == 1;
}

static void wait_gone(uint64_t lock_byte)
{
	kvt_wait_until(is_gone, &lock_byte);
}

static void memory_is_at_least_as_asked_and_names_its_backing(void **state)
{
	const char *backing = device->ops->backing(memory);

	(void)state;
	assert_true(bytes_of() >= ASKED_BYTES);
	assert_non_null(backing);
	if (device->backing)
		assert_string_equal(backing, device->backing);
}

static void filling_reports_every_byte_and_leaves_zeroes(void **state)
{
	_Atomic uint64_t progress = 0;
	uint8_t bytes[4096];

	(void)state;
	assert_int_equal(device->ops->populate(memory, &progress, &never), 0);
	assert_int_equal(progress, bytes_of());
	for (uint64_t at = 0; at + sizeof(bytes) <= bytes_of(); at += sizeof(bytes)) {
		memset(bytes, 0xff, sizeof(bytes));
		assert_int_equal(device->ops->read(memory, at, bytes, sizeof(bytes)), 0);
		for (unsigned i = 0; i < sizeof(bytes); i++)
			assert_int_equal(bytes[i], 0);
	}
}

static void filling_stops_when_cancelled(void **state)
{
	const _Atomic int cancelled = 1;
	_Atomic uint64_t progress = 0;

	(void)state;
	assert_int_equal(device->ops->populate(memory, &progress, &cancelled), -ECANCELED);
	assert_int_equal(progress, 0);
	assert_int_equal(device->ops->populate(memory, &progress, &never), 0);
}

static void filling_leaves_bytes_as_they_were(void **state)
{
	_Atomic uint64_t progress = 0;
	char text[8] = "before";

	(void)state;
	assert_int_equal(device->ops->write(memory, 70000, text, sizeof(text)), 0);
	assert_int_equal(device->ops->populate(memory, &progress, &never), 0);
	memset(text, 0, sizeof(text));
	assert_int_equal(device->ops->read(memory, 70000, text, sizeof(text)), 0);
	assert_string_equal(text, "before");
}

static void what_is_written_is_read_at_any_offset(void **state)
{
	static const uint64_t offsets[] = {0, 1, 4095, (2u << 20) - 3, (2u << 20), (4u << 20) - 7};
	uint8_t out[4100];
	uint8_t in[4100];

	(void)state;
	for (unsigned i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		memset(out, (int)i + 1, sizeof(out));
		assert_int_equal(device->ops->write(memory, offsets[i], out, sizeof(out)), 0);
		assert_int_equal(device->ops->read(memory, offsets[i], in, sizeof(in)), 0);
		assert_memory_equal(in, out, sizeof(in));
	}
	/* Beside what was written nothing changed: the byte before the last one. */
	assert_int_equal(device->ops->read(memory, offsets[5] - 1, in, 1), 0);
	assert_int_equal(in[0], 0);
}

static void reads_and_writes_stay_inside(void **state)
{
	uint64_t bytes = bytes_of();
	uint8_t byte = 1;
	uint8_t two[2] = {0};

	(void)state;
	assert_int_equal(device->ops->write(memory, bytes - 1, &byte, 1), 0);
	assert_int_equal(device->ops->read(memory, bytes - 2, two, 2), 0);
	assert_int_equal(two[1], 1);
	assert_int_equal(device->ops->write(memory, bytes - 1, two, 2), -ERANGE);
	assert_int_equal(device->ops->read(memory, bytes - 1, two, 2), -ERANGE);
	assert_int_equal(device->ops->write(memory, bytes, two, 0), 0);
	assert_int_equal(device->ops->read(memory, bytes, two, 0), 0);
	assert_int_equal(device->ops->write(memory, bytes + 1, two, 0), -ERANGE);
	assert_int_equal(device->ops->read(memory, UINT64_MAX, two, 2), -ERANGE);
	assert_int_equal(device->ops->write(memory, UINT64_MAX, two, 2), -ERANGE);
	assert_int_equal(device->ops->write(memory, 1, two, SIZE_MAX), -ERANGE);
}

static void a_session_sees_the_same_bytes(void **state)
{
	int fd = session(3);
	uint8_t *view = device->map(fd, bytes_of());
	char text[8] = "daemon";

	(void)state;
	assert_non_null(view);
	assert_int_equal(device->ops->write(memory, 5000, text, sizeof(text)), 0);
	assert_string_equal((char *)view + 5000, "daemon");
	memcpy(view + 5000, "client", 7);
	assert_int_equal(device->ops->read(memory, 5000, text, sizeof(text)), 0);
	assert_string_equal(text, "client");
	device->unmap(view, bytes_of());
	close(fd);
}

static void a_session_that_never_was_is_gone(void **state)
{
	(void)state;
	assert_gone(0, 1);
	assert_gone(12345, 1);
	assert_gone(INT64_MAX - 1, 1);
}

static void impossible_bytes_are_refused(void **state)
{
	int fd = 99;

	(void)state;
	assert_int_equal(device->ops->session_fd(memory, UINT64_MAX, &fd), -EINVAL);
	assert_int_equal(device->ops->proved_gone(memory, UINT64_MAX), -EINVAL);
	assert_int_equal(fd, 99);
}

static void a_session_is_gone_when_its_last_descriptor_is_closed(void **state)
{
	int fd = session(1);
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	(void)state;
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_gone(1, 0);
	close(fd);
	assert_gone(1, 0);
	close(copy);
	assert_gone(1, 1);
}

static void a_mapping_keeps_a_session_after_its_descriptor(void **state)
{
	int fd = session(1);
	void *view = device->map(fd, bytes_of());

	(void)state;
	close(fd);
	assert_gone(1, 0);
	device->unmap(view, bytes_of());
	assert_gone(1, 1);
}

static void sessions_with_neighbouring_bytes_are_apart(void **state)
{
	int seventh = session(7);
	int eighth = session(8);

	(void)state;
	assert_gone(6, 1);
	assert_gone(7, 0);
	assert_gone(8, 0);
	assert_gone(9, 1);
	close(seventh);
	assert_gone(7, 1);
	assert_gone(8, 0);
	seventh = session(7);
	close(eighth);
	assert_gone(7, 0);
	assert_gone(8, 1);
	close(seventh);
	assert_gone(7, 1);
}

/* The holder has the session's only descriptor or mapping; it is gone when, and only when, the holder is. */
static void hold_and_kill(enum holder_kind kind)
{
	int fd = session(40);
	struct holder holder = holder_start(kind, fd, bytes_of());

	close(fd);
	assert_gone(40, 0);
	assert_gone(39, 1);
	assert_gone(41, 1);
	holder_kill(holder.pid);
	wait_gone(40);
}

static void a_killed_process_that_mapped_is_gone(void **state)
{
	(void)state;
	hold_and_kill(HOLDER_MAPS);
}

static void a_descriptor_without_a_mapping_is_not_gone(void **state)
{
	(void)state;
	hold_and_kill(HOLDER_KEEPS_FD);
}

static void a_descriptor_that_nobody_received_is_not_gone(void **state)
{
	(void)state;
	hold_and_kill(HOLDER_FD_IN_FLIGHT);
}

static void a_descriptor_inherited_over_exec_is_not_gone(void **state)
{
	(void)state;
	hold_and_kill(HOLDER_EXECS_WITH_FD);
}

static void an_orphan_that_inherited_the_mapping_is_not_gone(void **state)
{
	int fd = session(40);
	struct holder holder = holder_start(HOLDER_CHILD_MAPS, fd, bytes_of());

	(void)state;
	close(fd);
	holder_kill(holder.pid);
	assert_gone(40, 0);
	holder_kill(holder.child);
	wait_gone(40);
}

static void exec_drops_descriptor_and_mapping_though_the_process_lives(void **state)
{
	int fd = session(40);
	struct holder holder = holder_start(HOLDER_EXECS, fd, bytes_of());

	(void)state;
	close(fd);
	wait_gone(40);
	assert_int_equal(waitpid(holder.pid, NULL, WNOHANG), 0);
	holder_kill(holder.pid);
}

static void one_of_many_killed_sessions_is_told_from_the_rest(void **state)
{
	struct holder holders[8];

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		int fd = session(100 + i);

		holders[i] = holder_start(HOLDER_MAPS, fd, bytes_of());
		close(fd);
	}
	for (unsigned killed = 0; killed < 8; killed++) {
		holder_kill(holders[killed].pid);
		wait_gone(100 + killed);
		for (unsigned i = killed + 1; i < 8; i++)
			assert_gone(100 + i, 0);
	}
}

static void nothing_stays_open(void **state)
{
	_Atomic uint64_t progress = 0;
	int before = kvt_count_fds();

	(void)state;
	assert_int_equal(make_memory(device->pages), 0);
	assert_int_equal(device->ops->populate(memory, &progress, &never), 0);
	assert_int_equal(device->ops->write(memory, 1, "x", 1), 0);
	close(session(1));
	device->ops->destroy(memory);
	assert_int_equal(kvt_count_fds(), before);
	memory = NULL;
	device->ops->destroy(NULL);
}

static void nothing_and_too_much_are_refused(void **state)
{
	struct kvd_memory_params none = {.name = "none", .bytes = 0, .pages = device->pages};
	struct kvd_memory_params much = {.name = "much", .bytes = UINT64_MAX, .pages = device->pages};

	(void)state;
	assert_int_equal(device->ops->create(&none, &memory), -EINVAL);
	assert_int_equal(device->ops->create(&much, &memory), -EINVAL);
	assert_null(memory);
}

#define WITH_MEMORY(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int device_conform(const struct device_case *asked)
{
	const struct CMUnitTest tests[] = {
		WITH_MEMORY(memory_is_at_least_as_asked_and_names_its_backing),
		WITH_MEMORY(filling_reports_every_byte_and_leaves_zeroes),
		WITH_MEMORY(filling_stops_when_cancelled),
		WITH_MEMORY(filling_leaves_bytes_as_they_were),
		WITH_MEMORY(what_is_written_is_read_at_any_offset),
		WITH_MEMORY(reads_and_writes_stay_inside),
		WITH_MEMORY(a_session_sees_the_same_bytes),
		WITH_MEMORY(a_session_that_never_was_is_gone),
		WITH_MEMORY(impossible_bytes_are_refused),
		WITH_MEMORY(a_session_is_gone_when_its_last_descriptor_is_closed),
		WITH_MEMORY(a_mapping_keeps_a_session_after_its_descriptor),
		WITH_MEMORY(sessions_with_neighbouring_bytes_are_apart),
		WITH_MEMORY(a_killed_process_that_mapped_is_gone),
		WITH_MEMORY(a_descriptor_without_a_mapping_is_not_gone),
		WITH_MEMORY(a_descriptor_that_nobody_received_is_not_gone),
		WITH_MEMORY(a_descriptor_inherited_over_exec_is_not_gone),
		WITH_MEMORY(an_orphan_that_inherited_the_mapping_is_not_gone),
		WITH_MEMORY(exec_drops_descriptor_and_mapping_though_the_process_lives),
		WITH_MEMORY(one_of_many_killed_sessions_is_told_from_the_rest),
		cmocka_unit_test(nothing_stays_open),
		cmocka_unit_test(nothing_and_too_much_are_refused),
	};

	device = asked;
	if (make_memory(device->pages) < 0)
		return KVT_SKIP;
	device->ops->destroy(memory);
	memory = NULL;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
