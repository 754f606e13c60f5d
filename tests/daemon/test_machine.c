/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of /proc and /sys, over trees of our own. */
#include "daemon/machine.h"

#include "support.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define HUGE "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define THP "/sys/kernel/mm/transparent_hugepage/"

static char *root;

static int make_root(void **state)
{
	(void)state;
	root = kvt_mkdtemp();
	return 0;
}

static int remove_root(void **state)
{
	(void)state;
	kvt_rmdir(root);
	return 0;
}

static void put(const char *path, const char *text)
{
	char full[512];
	FILE *file;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(full, 0700);
		*slash = '/';
	}
	file = fopen(full, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void memory_without_files_is_not_known(void **state)
{
	struct kvd_machine_memory memory;

	(void)state;
	kvd_machine_memory(root, &memory);
	assert_true(memory.available == UINT64_MAX);
	assert_true(memory.cgroup == UINT64_MAX);
}

static void available_memory_is_read(void **state)
{
	struct kvd_machine_memory memory;

	(void)state;
	put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:  7 kB\nMemAvailable:    500 kB\nX: 1 kB\n");
	kvd_machine_memory(root, &memory);
	assert_int_equal(memory.available, 500 * 1024);
	put("/proc/meminfo", "MemAvailable: 8 kB\n");
	kvd_machine_memory(root, &memory);
	assert_int_equal(memory.available, 8 * 1024);
	put("/proc/meminfo", "NotMemAvailable: 8 kB\n");
	kvd_machine_memory(root, &memory);
	assert_true(memory.available == UINT64_MAX);
}

static void the_tightest_cgroup_above_us_binds(void **state)
{
	struct kvd_machine_memory memory;

	(void)state;
	put("/proc/self/cgroup", "4:memory:/old\n0::/a/b/c\n");
	put("/sys/fs/cgroup/a/b/c/memory.max", "9000000\n");
	put("/sys/fs/cgroup/a/b/c/memory.current", "1000000\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/memory.max", "7000000\n");
	put("/sys/fs/cgroup/a/memory.current", "3000000\n");
	put("/sys/fs/cgroup/a/memory.stat",
	    "anon 5\ninactive_file 100\nactive_file 200\nfile 99999\nxinactive_file 1\n");
	kvd_machine_memory(root, &memory);
	assert_int_equal(memory.cgroup, 7000000 - 3000000 + 300);
	assert_string_equal(memory.cgroup_path, "/a");
	put("/sys/fs/cgroup/a/b/c/memory.current", "8999000\n");
	kvd_machine_memory(root, &memory);
	assert_int_equal(memory.cgroup, 1000);
	assert_string_equal(memory.cgroup_path, "/a/b/c");
	put("/sys/fs/cgroup/a/b/c/memory.current", "9999000\n");
	kvd_machine_memory(root, &memory);
	assert_int_equal(memory.cgroup, 0);
}

static void the_root_of_a_container_binds(void **state)
{
	struct kvd_machine_memory memory;

	(void)state;
	put("/proc/self/cgroup", "0::/\n");
	put("/sys/fs/cgroup/memory.max", "5000\n");
	put("/sys/fs/cgroup/memory.current", "100\n");
	put("/sys/fs/cgroup/memory.stat", "inactive_file 600\n");
	kvd_machine_memory(root, &memory);
	assert_int_equal(memory.cgroup, 5000);
	assert_string_equal(memory.cgroup_path, "/");
}

static void no_unified_hierarchy_is_no_limit(void **state)
{
	struct kvd_machine_memory memory;

	(void)state;
	put("/proc/self/cgroup", "10::/x\n4:memory:/y\n");
	put("/sys/fs/cgroup/x/memory.max", "5\n");
	kvd_machine_memory(root, &memory);
	assert_true(memory.cgroup == UINT64_MAX);
}

static void huge_pages_less_those_promised(void **state)
{
	struct kvd_machine_huge huge;

	(void)state;
	kvd_machine_huge(root, &huge);
	assert_false(huge.supported);
	assert_int_equal(huge.unpromised, 0);
	put(HUGE "nr_hugepages", "100\n");
	put(HUGE "free_hugepages", "60\n");
	put(HUGE "resv_hugepages", "20\n");
	kvd_machine_huge(root, &huge);
	assert_true(huge.supported);
	assert_int_equal(huge.total, 100);
	assert_int_equal(huge.unpromised, 40);
	put(HUGE "resv_hugepages", "61\n");
	kvd_machine_huge(root, &huge);
	assert_int_equal(huge.unpromised, 0);
}

static void assert_thp(const char *expected, bool granted)
{
	char word[32];

	kvd_machine_shmem_thp(root, word, sizeof(word));
	assert_string_equal(word, expected);
	assert_int_equal(kvd_machine_thp_granted(word), granted);
}

static void the_size_s_own_word_wins_unless_it_inherits(void **state)
{
	(void)state;
	assert_thp("", false);
	put(THP "shmem_enabled", "always within_size [advise] never deny force\n");
	assert_thp("advise", true);
	put(THP "hugepages-2048kB/shmem_enabled", "always [inherit] within_size advise never\n");
	assert_thp("advise", true);
	put(THP "hugepages-2048kB/shmem_enabled", "always inherit within_size advise [never]\n");
	assert_thp("never", false);
	put(THP "shmem_enabled", "always within_size advise [never] deny force\n");
	put(THP "hugepages-2048kB/shmem_enabled", "always inherit [within_size] advise never\n");
	assert_thp("within_size", true);
	put(THP "shmem_enabled", "always within_size advise never [deny] force\n");
	assert_thp("deny", false);
}

static void numbers_have_a_fallback(void **state)
{
	(void)state;
	assert_int_equal(kvd_machine_number(root, "/n", -1), -1);
	put("/n", "max\n");
	assert_int_equal(kvd_machine_number(root, "/n", -1), -1);
	put("/n", "42\n");
	assert_int_equal(kvd_machine_number(root, "/n", -1), 42);
	put("/n", "");
	assert_int_equal(kvd_machine_number(root, "/n", 7), 7);
}

static void bytes_are_read_by_people(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0 bytes"},          {1023, "1023 bytes"},    {1024, "1.0 KiB"},
		{4423680000, "4.1 GiB"}, {1ull << 40, "1.0 TiB"}, {UINT64_MAX, "16384.0 PiB"},
	};
	char text[32];

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		kvd_format_bytes(cases[i].bytes, text, sizeof(text));
		assert_string_equal(text, cases[i].text);
	}
}

#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_ROOT(memory_without_files_is_not_known),
		WITH_ROOT(available_memory_is_read),
		WITH_ROOT(the_tightest_cgroup_above_us_binds),
		WITH_ROOT(the_root_of_a_container_binds),
		WITH_ROOT(no_unified_hierarchy_is_no_limit),
		WITH_ROOT(huge_pages_less_those_promised),
		WITH_ROOT(the_size_s_own_word_wins_unless_it_inherits),
		WITH_ROOT(numbers_have_a_fallback),
		cmocka_unit_test(bytes_are_read_by_people),
	};

	kvt_watchdog(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
