/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --check: a machine that has everything, then one lack after another, each with its verdict and what to change; and a look at this
 * machine.
 */
#include "daemon/preflight.h"
#include "daemon/preflight_internal.h"

#include "config_load.h"
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define GIB (1ull << 30)

/* 60,000 blocks of 73,728 bytes with null and sink blocks take 2,112 huge pages. */
#define PAGES 2112u

static struct kvd_facts plenty(void)
{
	struct kvd_facts facts = {
		.memory = {.available = 64 * GIB, .cgroup = UINT64_MAX},
		.huge = {.supported = true, .total = 4000, .unpromised = 3000},
		.shmem_thp = "advise",
		.descriptors = {.rlim_cur = 1024, .rlim_max = 1048576},
		.locked = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY},
		.file_bytes = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY},
		.io_uring_disabled = 0,
		.socket_dir = "/run/kvpool",
	};

	return facts;
}

struct verdict {
	int failures;
	char text[8192];
};

static struct verdict judge_with(const struct kvd_facts *facts, const char *first, const char *second)
{
	const char *const arguments[] = {first, second, NULL};
	struct config_loaded loaded = config_load("[pool main]\nblocks = 60000\n", arguments);
	struct verdict verdict = {0};
	FILE *out = fmemopen(verdict.text, sizeof(verdict.text), "w");

	config_assert_loads(&loaded);
	assert_non_null(out);
	verdict.failures = kvd_preflight_judge(&loaded.config, facts, out);
	fclose(out);
	kvd_config_free(&loaded.config);
	return verdict;
}

static struct verdict judge(const struct kvd_facts *facts)
{
	return judge_with(facts, NULL, NULL);
}

/* The line that begins so. */
static void line_of(const struct verdict *verdict, const char *start, char *out, size_t capacity)
{
	const char *line = strstr(verdict->text, start);

	if (!line || (line != verdict->text && line[-1] != '\n'))
		fail_msg("no line '%s' in:\n%s", start, verdict->text);
	snprintf(out, capacity, "%.*s", (int)strcspn(line, "\n"), line);
}

static void assert_line(const struct verdict *verdict, const char *start, const char *found,
			const char *change)
{
	char line[1024];
	const char *cut;

	line_of(verdict, start, line, sizeof(line));
	if (!strstr(line, found))
		fail_msg("'%s' lacks '%s'", line, found);
	cut = strstr(line, "; to change: ");
	assert_int_equal(cut == NULL, change == NULL);
	if (change && !strstr(cut, change))
		fail_msg("'%s' lacks the change '%s'", line, change);
}

static void a_machine_with_plenty_is_all_right(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict = judge(&facts);

	(void)state;
	assert_int_equal(verdict.failures, 0);
	assert_null(strstr(verdict.text, "FAIL"));
	assert_null(strstr(verdict.text, "note"));
	assert_line(&verdict, "ok    configuration: ", "1 pool", NULL);
	assert_line(&verdict, "ok    pool main: ", "60000 blocks of 64 tokens, 1 planes, 73728 bytes a block",
		    NULL);
	assert_line(&verdict, "ok    memory: ", "64.0 GiB", NULL);
	assert_line(&verdict, "ok    cgroup: ", "no memory.max", NULL);
	assert_line(&verdict, "ok    tables: ", "up to 1.0 GiB", NULL);
	assert_line(&verdict, "ok    huge pages: ", "want 2112 of 2 MiB, 3000 of 4000 are free", NULL);
	assert_line(&verdict, "ok    descriptors: ", "1048576", NULL);
	assert_line(&verdict, "ok    event loop: ", "io_uring is granted", NULL);
	assert_line(&verdict, "ok    locked memory: ", "no limit", NULL);
	assert_line(&verdict, "ok    clients' ends: ", "SO_PEERPIDFD", NULL);
	assert_line(&verdict, "ok    proof of gone: ", "OFD", NULL);
	assert_line(&verdict, "ok    socket: ", "/run/kvpool/kvpoold.sock", NULL);
	assert_line(&verdict, "ok    access: ", "0660", NULL);
}

static void too_little_memory_fails(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	facts.huge.unpromised = 0;
	facts.memory.available = 4 * GIB;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  memory: ", "take 4.1 GiB, the machine leaves 4.0 GiB", "lower 'blocks'");
	assert_line(&verdict, "note  tables: ", "1.0 GiB", "tables_limit");
	/* With huge pages at hand it is only the records. */
	facts.huge.unpromised = PAGES;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 0);
}

static void a_tight_cgroup_fails_with_its_name(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	facts.memory.cgroup = 2 * GIB;
	snprintf(facts.memory.cgroup_path, sizeof(facts.memory.cgroup_path), "/system.slice");
	verdict = judge_with(&facts, "--set=pool.main.pages=4k", NULL);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  cgroup: ", "/system.slice leaves 2.0 GiB", "MemoryMax=");
	assert_line(&verdict, "ok    memory: ", "64.0 GiB", NULL);
}

static void missing_huge_pages_fail_only_when_they_must_be(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	facts.huge.unpromised = 100;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 0);
	assert_line(&verdict, "note  huge pages: ", "want 2112", "sysctl vm.nr_hugepages=6012");
	assert_line(&verdict, "ok    transparent huge pages: ", "'advise'", NULL);
	verdict = judge_with(&facts, "--set=pool.main.pages=hugetlb", NULL);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  huge pages: ", "100 of 4000 are free", "sysctl vm.nr_hugepages=6012");
	/* The missing ones must come from somewhere. */
	facts.memory.available = GIB;
	verdict = judge_with(&facts, "--set=pool.main.pages=hugetlb", NULL);
	assert_int_equal(verdict.failures, 2);
	assert_line(&verdict, "FAIL  memory: ", "1.0 GiB", "lower 'blocks'");
}

static void missing_transparent_huge_pages_fail_only_when_they_must_be(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	snprintf(facts.shmem_thp, sizeof(facts.shmem_thp), "never");
	verdict = judge(&facts);
	assert_null(strstr(verdict.text, "transparent"));
	facts.huge.unpromised = 0;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 0);
	assert_line(&verdict, "note  transparent huge pages: ", "'never'", "echo advise > /sys/kernel/mm/");
	verdict = judge_with(&facts, "--set=pool.main.pages=thp", NULL);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  transparent huge pages: ", "can't be had",
		    "echo advise > /sys/kernel/mm/");
	verdict = judge_with(&facts, "--set=pool.main.pages=4k", NULL);
	assert_null(strstr(verdict.text, "transparent"));
	assert_null(strstr(verdict.text, "huge pages"));
}

static void too_few_descriptors_fail(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	facts.descriptors.rlim_max = 1024;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  descriptors: ",
		    "max_sessions = 256 and max_engines take up to 3776, above the hard limit of 1024",
		    "LimitNOFILE=3776");
	verdict = judge_with(&facts, "--max-sessions=16", NULL);
	assert_int_equal(verdict.failures, 0);
}

/* Guards descriptors_unread(): 256 sessions that don't read have 64 each under way. */
static void descriptors_of_a_device_that_nobody_reads_are_counted(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	facts.descriptors.rlim_max = 16383;
	verdict = judge_with(&facts, "--set=pool.main.devices=cuda:0", NULL);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  descriptors: ",
		    "take up to 16384 sent and not read yet, above the hard limit of 16383",
		    "LimitNOFILE=16384");
	/* One handle and no descriptors of it. */
	verdict = judge_with(&facts, "--set=pool.main.devices=cuda:0", "--set=pool.main.share=ipc");
	assert_int_equal(verdict.failures, 0);
	assert_line(&verdict, "ok    descriptors: ", "take up to 3776, ", NULL);
}

static void a_file_size_limit_fails(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	facts.file_bytes.rlim_cur = GIB;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  file size: ", "4.1 GiB, above the limit of 1.0 GiB",
		    "LimitFSIZE=infinity");
}

static void a_refused_io_uring_fails_only_when_asked_for(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	facts.io_uring_defer = -EINVAL;
	verdict = judge(&facts);
	assert_line(&verdict, "note  event loop: ", "without DEFER_TASKRUN", "Linux 6.1");
	facts.io_uring_defer = -EPERM;
	facts.io_uring_plain = -EPERM;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 0);
	assert_line(&verdict, "note  event loop: ", "epoll is used", "seccomp");
	facts.io_uring_disabled = 2;
	verdict = judge_with(&facts, "--event-loop=io_uring", NULL);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  event loop: ", "Operation not permitted",
		    "sysctl kernel.io_uring_disabled=0");
	verdict = judge_with(&facts, "--event-loop=io_uring_plain", NULL);
	assert_int_equal(verdict.failures, 1);
	verdict = judge_with(&facts, "--event-loop=epoll", NULL);
	assert_int_equal(verdict.failures, 0);
	assert_line(&verdict, "ok    event loop: ", "as configured", NULL);
	facts.io_uring_disabled = 0;
	facts.io_uring_defer = -ENOMEM;
	facts.io_uring_plain = -ENOMEM;
	facts.locked.rlim_cur = 65536;
	verdict = judge(&facts);
	assert_line(&verdict, "note  event loop: ", "Cannot allocate memory", "LimitMEMLOCK=infinity");
	assert_line(&verdict, "note  locked memory: ", "64.0 KiB", "LimitMEMLOCK=infinity");
}

static void what_proves_a_clients_end_is_named(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	facts.peer_pidfd = -ENOPROTOOPT;
	verdict = judge(&facts);
	assert_line(&verdict, "note  clients' ends: ", "pidfd_open is used", "Linux 6.5");
	facts.pidfd_open = -EPERM;
	verdict = judge(&facts);
	assert_line(&verdict, "note  clients' ends: ", "locks alone", "seccomp");
	assert_int_equal(verdict.failures, 0);
	facts.ofd_locks = -ENOENT;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  proof of gone: ", "don't work", "mount /proc");
}

static void an_unusable_socket_directory_fails(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	facts.socket_dir_access = -ENOENT;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  socket: ", "'/run/kvpool'", "mkdir -p '/run/kvpool'");
	facts.socket_dir_access = -EACCES;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 1);
	assert_line(&verdict, "FAIL  socket: ", "Permission denied", "chown");
}

static void who_may_connect_is_said(void **state)
{
	struct kvd_facts facts = plenty();
	struct verdict verdict;

	(void)state;
	verdict = judge_with(&facts, "--socket-mode=0666", NULL);
	assert_line(&verdict, "note  access: ", "every user of this machine", "socket_mode = 0660");
	verdict = judge_with(&facts, "--socket-mode=0600", NULL);
	assert_line(&verdict, "ok    access: ", "root, the daemon's user may connect", NULL);
	verdict = judge_with(&facts, "--socket-group=0", NULL);
	assert_line(&verdict, "ok    access: ", "and group root may connect", NULL);
	verdict = judge_with(&facts, "--socket-group=3999999", NULL);
	assert_line(&verdict, "ok    access: ", "and group 3999999 may connect", NULL);
	facts.socket_taken = true;
	verdict = judge(&facts);
	assert_int_equal(verdict.failures, 0);
	assert_line(&verdict, "note  socket: ", "listens", "stop that daemon");
}

/* -------- this machine */

static void look(const char *socket_path, struct kvd_facts *out)
{
	struct config_loaded loaded = CONFIG_LOAD("[pool a]\nblocks = 1\n", "--socket", socket_path);
	int before = kvt_count_fds();

	config_assert_loads(&loaded);
	kvd_facts_look(&loaded.config, out);
	assert_int_equal(kvt_count_fds(), before);
	kvd_config_free(&loaded.config);
}

static void this_machine_is_looked_at_and_left_as_it_was(void **state)
{
	struct kvd_facts facts;
	struct rlimit limit;

	(void)state;
	look("/no/such/directory/s", &facts);
	assert_int_equal(facts.socket_dir_access, -ENOENT);
	assert_string_equal(facts.socket_dir, "/no/such/directory");
	assert_false(facts.socket_taken);
	assert_int_equal(facts.ofd_locks, 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_true(facts.descriptors.rlim_max == limit.rlim_max);
	look("/dev/null/s", &facts);
	assert_int_equal(facts.socket_dir_access, -ENOTDIR);
	look("s", &facts);
	assert_string_equal(facts.socket_dir, ".");
	look("/s", &facts);
	assert_string_equal(facts.socket_dir, "/");
}

static void a_daemon_that_listens_is_seen(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char *dir = kvt_mkdtemp();
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct kvd_facts facts;

	(void)state;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", dir);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	look(address.sun_path, &facts);
	assert_int_equal(facts.socket_dir_access, 0);
	assert_false(facts.socket_taken);
	assert_int_equal(listen(fd, 1), 0);
	look(address.sun_path, &facts);
	assert_true(facts.socket_taken);
	close(fd);
	kvt_rmdir(dir);
}

/* How many descriptors the kernel's table has room for without growing. */
static unsigned table_size(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	unsigned size = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "FDSize: %u", &size);
	fclose(file);
	return size;
}

static void descriptors_are_raised_to_what_sessions_take(void **state)
{
	struct config_loaded loaded = CONFIG_LOAD("[pool a]\nblocks = 1\n", "--max-sessions=64");
	struct rlimit before;
	struct rlimit limit;

	(void)state;
	config_assert_loads(&loaded);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	assert_true(before.rlim_max >= 1472);
	limit = (struct rlimit){.rlim_cur = 300, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	kvd_preflight_raise_descriptors(&loaded.config);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(limit.rlim_cur, 64 * 12 + 64 * 7 + 256);
	assert_in_range(table_size(), 64 * 12 + 64 * 7 + 256, UINT32_MAX);
	assert_int_equal(limit.rlim_max, before.rlim_max);
	kvd_preflight_raise_descriptors(&loaded.config);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	kvd_config_free(&loaded.config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_machine_with_plenty_is_all_right),
		cmocka_unit_test(too_little_memory_fails),
		cmocka_unit_test(a_tight_cgroup_fails_with_its_name),
		cmocka_unit_test(missing_huge_pages_fail_only_when_they_must_be),
		cmocka_unit_test(missing_transparent_huge_pages_fail_only_when_they_must_be),
		cmocka_unit_test(too_few_descriptors_fail),
		cmocka_unit_test(descriptors_of_a_device_that_nobody_reads_are_counted),
		cmocka_unit_test(a_file_size_limit_fails),
		cmocka_unit_test(a_refused_io_uring_fails_only_when_asked_for),
		cmocka_unit_test(what_proves_a_clients_end_is_named),
		cmocka_unit_test(an_unusable_socket_directory_fails),
		cmocka_unit_test(who_may_connect_is_said),
		cmocka_unit_test(this_machine_is_looked_at_and_left_as_it_was),
		cmocka_unit_test(a_daemon_that_listens_is_seen),
		cmocka_unit_test(descriptors_are_raised_to_what_sessions_take),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, config_load_setup, config_load_teardown);
}
