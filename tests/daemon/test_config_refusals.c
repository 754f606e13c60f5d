/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused of file and command line: one clear sentence for each way to get it wrong. */
#include "config_load.h"

#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct refusal {
	const char *text;     /* of the file */
	const char *needs[4]; /* each must stand in the sentence */
};

static void a_wrong_file_is_refused_at_its_line(void **state)
{
	static const struct refusal cases[] = {
		{"[daemon]\nfoo = 1\n", {":2:", "[daemon]", "'foo'", "poll_ms"}},
		{"[pool a]\nblocks=1\nfoo = 1\n", {":3:", "[pool a]", "'foo'", "block_tokens"}},
		{"[other]\nx=1\n", {":1:", "[other]", "[pool NAME]"}},
		{"[pool a]\nblocks=1\n[other]\n", {":3:", "[other]"}},
		{"[Daemon]\n", {":1:", "[Daemon]"}},
		{"blocks=1\n", {":1:", "before any section"}},
		{"[daemon]\npoll_ms=2\n[pool a]\nblocks=1\n[daemon]\npoll_ms = 3\n",
		 {":6:", "poll_ms", ":2"}},
		{"[pool a]\nblocks=1\nblocks=1\n", {":3:", "[pool a]", "blocks", ":2"}},
		{"[pool a]\n", {":1:", "[pool a]", "'blocks'", "1 to 67108864"}},
		{"[daemon]\n\n", {"no pool", "[pool NAME]"}},
		{"", {"no pool"}},
		{"[pool a]\nblocks\n", {":2:", "key = value"}},
		{"[pool a\nblocks=1\n", {":1:", "']'"}},
		{"[pool a]\nblocks=\n", {":2:", "blocks", "''", "1 to"}},
		{"[pool a]\nblocks=0\n", {":2:", "blocks", "'0'", "limit of 1"}},
		{"[pool a]\nblocks=67108865\n", {":2:", "'67108865'", "limit of 67108864"}},
		{"[pool a]\nblocks=99999999999999999999999\n", {":2:", "blocks", "whole number"}},
		{"[pool a]\nblocks=-1\n", {":2:", "'-1'"}},
		{"[pool a]\nblocks=+1\n", {":2:", "'+1'"}},
		{"[pool a]\nblocks=1.5\n", {":2:", "'1.5'"}},
		{"[pool a]\nblocks=0x10\n", {":2:", "'0x10'"}},
		{"[pool a]\nblocks=1 # one\n", {":2:", "'1 # one'"}},
		{"[pool a]\nblocks=1\nblock_tokens=65537\n", {":3:", "block_tokens", "65536"}},
		{"[pool a]\nblocks=1\nblock_tokens=0\n", {":3:", "block_tokens", "limit of 1"}},
		{"[pool a]\nblocks=1\nlayers=513\n", {":3:", "layers", "512"}},
		{"[pool a]\nblocks=1\nlayout=rows\n", {":3:", "layout", "'rows'", "block_major|layer_major"}},
		{"[pool a]\nblocks=1\nlayout=block_majo\n", {":3:", "'block_majo'"}},
		{"[pool a]\nblocks=1\npages=2M\n", {":3:", "pages", "'2M'", "auto|hugetlb|thp|4k"}},
		{"[pool a]\nblocks=1\npolicy=fifo\n", {":3:", "policy", "'fifo'", "lru"}},
		{"[pool a]\nblocks=1\nquota_blocks=67108865\n", {":3:", "quota_blocks", "67108864"}},
		{"[pool a]\nblocks=1\nmax_engines=257\n", {":3:", "max_engines", "256"}},
		{"[pool a]\nblocks=1\nmax_engines=0\n", {":3:", "max_engines", "limit of 1"}},
		{"[pool a]\nblocks=1\ntables_limit=64\n", {":3:", "tables_limit", "65536"}},
		{"[pool a]\nblocks=1\ntables_limit=65G\n", {":3:", "tables_limit", "64G"}},
		{"[pool a]\nblocks=1\ntables_limit=18446744073709551615G\n", {":3:", "tables_limit", "64G"}},
		{"[pool a]\nblocks=1\ntables_limit=17179869185G\n", {":3:", "tables_limit", "64G"}},
		{"[pool a]\nblocks=1\ntables_limit=1T\n", {":3:", "'1T'", "not a size"}},
		{"[pool a]\nblocks=1\ntables_limit=1GB\n", {":3:", "'1GB'", "not a size"}},
		{"[pool a]\nblocks=1\ntables_limit=G\n", {":3:", "'G'", "not a size"}},
		{"[pool a]\nblocks=1\ndevices=gpu0\n", {":3:", "devices", "'gpu0'", "cuda:<bus id>"}},
		{"[pool a]\nblocks=1\ndevices=cuda:\n", {":3:", "devices", "'cuda:'", "no device"}},
		{"[pool a]\nblocks=1\nshare=dmabuf\n", {":3:", "share", "'dmabuf'", "auto|ipc|fd"}},
		{"[pool a]\nblocks=1\nshare=fd\n", {":3:", "share = 'fd' is for CUDA devices", "cuda:0"}},
		{"[pool a]\nblocks=1\ndevices=cuda:0\ndevice_grace_ms=600001\n",
		 {":4:", "device_grace_ms", "limit of 600000"}},
		{"[pool a]\nblocks=1\ndevices=cuda:0\npages=thp\n",
		 {":4:", "pages = 'thp'", "devices = 'cuda:0'"}},
		{"[daemon]\nallow_mps=maybe\n", {":2:", "allow_mps", "'maybe'", "no|yes"}},
		{"[pool a]\nblocks=1\ndevices=cuda:0, cuda:1\n",
		 {":3:", "'cuda:0, cuda:1'", "more than one device", "limit is 1"}},
		{"[pool a]\nblocks=1\ndevices=host, host\n",
		 {":3:", "more than one device is not supported"}},
		{"[pool a b]\nblocks=1\n", {":1:", "'a b'", "44"}},
		{"[pool a.b]\nblocks=1\n", {":1:", "'a.b'"}},
		{"[pool ]\nblocks=1\n", {":1:", "''"}},
		{"[pool aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeee]\nblocks=1\n",
		 {":1:", "eeeee", "limit"}},
		{"[daemon]\nsocket=\n", {":2:", "socket", "empty"}},
		{"[daemon]\nsocket_mode=0888\n", {":2:", "socket_mode", "'0888'", "octal"}},
		{"[daemon]\nsocket_mode=1777\n", {":2:", "socket_mode", "'1777'", "0777"}},
		{"[daemon]\nsocket_group=no-such-group-here\n",
		 {":2:", "socket_group", "no-such-group-here"}},
		{"[daemon]\nsocket_group=4294967295\n", {":2:", "socket_group", "limit"}},
		{"[daemon]\nevent_loop=select\n", {":2:", "event_loop", "'select'", "io_uring_plain"}},
		{"[daemon]\npoll_ms=0\n", {":2:", "poll_ms", "limit of 1"}},
		{"[daemon]\npoll_ms=11\n", {":2:", "poll_ms", "limit of 10"}},
		{"[daemon]\nmax_sessions=1025\n", {":2:", "max_sessions", "1024"}},
		{"[daemon]\nlog_level=verbose\n",
		 {":2:", "log_level", "'verbose'", "error|warning|info|debug"}},
		{"[daemon]\nadmin_users=root,no-such-user-here\n",
		 {":2:", "admin_users", "no-such-user-here"}},
		{"[daemon]\nadmin_users=root,,root\n", {":2:", "admin_users", "''"}},
		{"[daemon]\nadmin_users=4294967295\n", {":2:", "admin_users", "limit"}},
		{"[daemon]\nadmin_users=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1\n",
		 {":2:", "admin_users", "32"}},
		{"[daemon]\nlog_level=\x1b[31m\n", {":2:", "log_level", "\\x1b[31m"}},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char at[300];
		struct config_loaded loaded = CONFIG_LOAD(cases[i].text);

		config_assert_refused(&loaded, cases[i].needs, cases[i].text);
		snprintf(at, sizeof(at), "%s:", config_path);
		assert_ptr_equal(strstr(loaded.error, at), loaded.error);
	}
}

static void a_wrong_command_line_is_refused(void **state)
{
	static const struct {
		const char *arguments[3];
		const char *needs[4];
	} cases[] = {
		{{"--foo"}, {"command line", "'--foo'", "--help"}},
		{{"--poll-ms"}, {"command line", "'--poll-ms'", "value"}},
		{{"--check=1"}, {"command line", "'--check=1'"}},
		{{"-x"}, {"command line", "-x"}},
		{{"extra"}, {"command line", "'extra'"}},
		{{"--poll-ms=11"}, {"command line, --poll-ms", "'11'", "limit of 10"}},
		{{"--poll-ms=1", "--poll_ms=2"}, {"command line, --poll-ms", "already set"}},
		{{"--set", "pool.a.foo=1"}, {"command line, --set", "[pool a]", "'foo'"}},
		{{"--set", "pool.a.blocks=x"}, {"command line, --set", "blocks", "'x'"}},
		{{"--set", "pool.b.layers=1"}, {"command line, --set", "[pool b]", "'blocks'"}},
		{{"--set", "pool.a.blocks"}, {"--set", "'pool.a.blocks'", "pool.NAME.KEY=VALUE"}},
		{{"--set", "daemon.poll_ms=1"}, {"--set", "pool.NAME.KEY=VALUE"}},
		{{"--set", "pool.a=1"}, {"--set", "pool.NAME.KEY=VALUE"}},
		{{"--set", "pool..blocks=1"}, {"--set", "''"}},
		{{"--set=pool.a.layers=1", "--set=pool.a.layers=1"}, {"--set", "layers", "already set"}},
		{{"--ready-fd=x"}, {"--ready-fd", "'x'"}},
		{{"--ready-fd=2147483648"}, {"--ready-fd", "'2147483648'"}},
		{{"--config", "/tmp"}, {"--config", "twice"}},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct config_loaded loaded = config_load("[pool a]\nblocks=1\n", cases[i].arguments);

		config_assert_refused(&loaded, cases[i].needs, cases[i].arguments[0]);
	}
}

static void files_that_cannot_be_read_are_named(void **state)
{
	struct config_loaded loaded = CONFIG_LOAD(NULL, "--config", "/no/such/file");

	(void)state;
	assert_int_equal(loaded.ret, -ENOENT);
	assert_non_null(strstr(loaded.error, "/no/such/file"));
	assert_non_null(strstr(loaded.error, "--config"));
	loaded = CONFIG_LOAD(NULL, "--config", "/tmp");
	assert_int_equal(loaded.ret, -EISDIR);
	assert_non_null(strstr(loaded.error, "/tmp"));
}

/* inih would cut it at its own limit and say nothing. */
static void long_lines_and_nul_bytes_are_refused(void **state)
{
	char text[600];
	struct config_loaded loaded;
	static const char *const long_needs[4] = {":2:", "limit"};
	static const char *const nul_needs[4] = {":2:", "NUL"};
	const char *const args[] = {"--config", config_path, NULL};

	(void)state;
	snprintf(text, sizeof(text), "[pool a]\nblocks=1%500s\n", "");
	loaded = CONFIG_LOAD(text);
	config_assert_refused(&loaded, long_needs, "long line");
	config_write_file("[pool a]\nblocks=1\0x\n", 20);
	loaded = config_load(NULL, args);
	config_assert_refused(&loaded, nul_needs, "NUL byte");
}

static void too_many_pools_are_refused(void **state)
{
	char text[64 * 32];
	size_t used = 0;
	struct config_loaded loaded;
	static const char *const needs[4] = {"limit of 64"};

	(void)state;
	for (unsigned i = 0; i < 64; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "[pool p%u]\nblocks=1\n", i);
	loaded = CONFIG_LOAD(text);
	config_assert_loads(&loaded);
	assert_int_equal(loaded.config.pool_count, 64);
	kvd_config_free(&loaded.config);
	loaded = CONFIG_LOAD(text, "--set=pool.more.blocks=1");
	config_assert_refused(&loaded, needs, "65 pools");
}

static void a_small_error_buffer_is_not_overrun(void **state)
{
	char *argv[] = {"kvpoold", "--no-such-option-at-all"};
	struct kvd_config config;
	char error[16];

	(void)state;
	memset(error, 'x', sizeof(error));
	assert_int_equal(kvd_config_load(2, argv, &config, error, 8), -EINVAL);
	assert_int_equal(strlen(error), 7);
	assert_int_equal(error[8], 'x');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_file_is_refused_at_its_line),
		cmocka_unit_test(a_wrong_command_line_is_refused),
		cmocka_unit_test(files_that_cannot_be_read_are_named),
		cmocka_unit_test(long_lines_and_nul_bytes_are_refused),
		cmocka_unit_test(too_many_pools_are_refused),
		cmocka_unit_test(a_small_error_buffer_is_not_overrun),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, config_load_setup, config_load_teardown);
}
