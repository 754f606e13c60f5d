/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration: defaults, what wins over what, and what the help promises. */
#include "config_load.h"

#include "support.h"

#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *print(void (*printer)(FILE *))
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);

	assert_non_null(out);
	printer(out);
	fclose(out);
	return text;
}

static void a_pool_of_blocks_alone_has_the_defaults(void **state)
{
	struct config_loaded loaded = CONFIG_LOAD("[pool main]\nblocks = 60000\n");
	const struct kvd_config *config = &loaded.config;
	const struct kvd_pool_config *pool = config->pools;

	(void)state;
	config_assert_loads(&loaded);
	assert_string_equal(config->socket, "/run/kvpool/kvpoold.sock");
	assert_int_equal(config->socket_mode, 0660);
	assert_true(config->socket_group == (gid_t)-1);
	assert_int_equal(config->event_loop, KVD_LOOP_AUTO);
	assert_int_equal(config->poll_ms, 2);
	assert_int_equal(config->stop_timeout_ms, 5000);
	assert_int_equal(config->max_sessions, 256);
	assert_int_equal(config->log_level, KVD_LOG_INFO);
	assert_int_equal(config->admin_count, 0);
	assert_int_equal(config->ready_fd, -1);
	assert_string_equal(config->file, config_path);
	assert_false(config->check_only || config->help || config->version);
	assert_int_equal(config->pool_count, 1);
	assert_string_equal(pool->name, "main");
	assert_int_equal(pool->data_blocks, 60000);
	assert_int_equal(pool->max_engines, 64);
	assert_true(pool->quota_blocks == UINT64_MAX);
	assert_int_equal(pool->tables_limit_bytes, 1u << 30);
	assert_int_equal(pool->pages, KVD_PAGES_AUTO);
	assert_string_equal(pool->policy, "lru");
	kvd_config_free(&loaded.config);
}

static void the_default_plane_is_one_latent_of_bf16(void **state)
{
	struct config_loaded loaded = CONFIG_LOAD("[pool main]\nblocks = 100\n");
	const struct kvw_geometry *geometry;
	const struct kvw_plane *plane;

	(void)state;
	config_assert_loads(&loaded);
	geometry = &loaded.config.pools[0].geometry;
	plane = &geometry->planes[0];
	assert_int_equal(geometry->block_tokens, 64);
	assert_int_equal(geometry->blocks, 1 + 64 + 100);
	assert_int_equal(geometry->pool_layout, KVW_POOL_BLOCK_MAJOR);
	assert_int_equal(geometry->plane_count, 1);
	assert_int_equal(plane->role, KVW_ROLE_LATENT);
	assert_int_equal(plane->dtype, KVW_DTYPE_BF16);
	assert_int_equal(plane->heads, 1);
	assert_int_equal(plane->dim, 576);
	assert_int_equal(plane->layer, 0);
	assert_int_equal(plane->plane_set, 1);
	assert_int_equal(plane->placement, KVW_PLACEMENT_REPLICATED);
	assert_int_equal(plane->kernel_page_tokens, 64);
	assert_int_equal(plane->page_bytes, 64 * 576 * 2);
	assert_int_equal(geometry->record_bytes, 73728);
	assert_int_equal(geometry->bytes, 165ull * 73728);
	kvd_config_free(&loaded.config);
}

static void every_key_is_read(void **state)
{
	struct config_loaded loaded = CONFIG_LOAD("; a comment\n"
						  "# another\n"
						  "[daemon]\n"
						  "socket = /tmp/x.sock\n"
						  "  socket_mode = 0600\n"
						  "socket_group = 12\n"
						  "event_loop = epoll ; of the loop\n"
						  "poll_ms = 10\n"
						  "stop_timeout_ms = 600000\n"
						  "max_sessions = 1024\n"
						  "log_level = debug\n"
						  "admin_users = root, 1000 ,7\n"
						  "\n"
						  "[pool a-B_9]\n"
						  "blocks = 10\n"
						  "block_tokens = 16\n"
						  "planes = opaque 16\n"
						  "layers = 2\n"
						  "layout = layer_major\n"
						  "pages = 4k\n"
						  "policy = lru\n"
						  "quota_blocks = 5\n"
						  "max_engines = 3\n"
						  "tables_limit = 64M\n"
						  "devices = host\n");
	const struct kvd_config *config = &loaded.config;
	const struct kvd_pool_config *pool = config->pools;

	(void)state;
	config_assert_loads(&loaded);
	assert_string_equal(config->socket, "/tmp/x.sock");
	assert_int_equal(config->socket_mode, 0600);
	assert_int_equal(config->socket_group, 12);
	assert_int_equal(config->event_loop, KVD_LOOP_EPOLL);
	assert_int_equal(config->poll_ms, 10);
	assert_int_equal(config->stop_timeout_ms, 600000);
	assert_int_equal(config->max_sessions, 1024);
	assert_int_equal(config->log_level, KVD_LOG_DEBUG);
	assert_int_equal(config->admin_count, 3);
	assert_int_equal(config->admins[0], 0);
	assert_int_equal(config->admins[1], 1000);
	assert_int_equal(config->admins[2], 7);
	assert_string_equal(pool->name, "a-B_9");
	assert_int_equal(pool->geometry.block_tokens, 16);
	assert_int_equal(pool->geometry.plane_count, 2);
	assert_int_equal(pool->geometry.pool_layout, KVW_POOL_LAYER_MAJOR);
	assert_int_equal(pool->geometry.blocks, 1 + 3 + 10);
	assert_int_equal(pool->geometry.planes[1].stride, 256);
	assert_int_equal(pool->geometry.planes[1].base, 14 * 256);
	assert_int_equal(pool->pages, KVD_PAGES_4K);
	assert_int_equal(pool->quota_blocks, 5);
	assert_int_equal(pool->tables_limit_bytes, 64u << 20);
	kvd_config_free(&loaded.config);
}

static void every_choice_is_its_number(void **state)
{
	static const struct {
		const char *argument;
		size_t offset;
		uint32_t value;
	} cases[] = {
		{"--event-loop=auto", offsetof(struct kvd_config, event_loop), KVD_LOOP_AUTO},
		{"--event-loop=io_uring", offsetof(struct kvd_config, event_loop), KVD_LOOP_IO_URING},
		{"--event_loop=io_uring_plain", offsetof(struct kvd_config, event_loop),
		 KVD_LOOP_IO_URING_PLAIN},
		{"--event-loop=epoll", offsetof(struct kvd_config, event_loop), KVD_LOOP_EPOLL},
		{"--log-level=error", offsetof(struct kvd_config, log_level), KVD_LOG_ERROR},
		{"--log-level=warning", offsetof(struct kvd_config, log_level), KVD_LOG_WARNING},
		{"--log-level=info", offsetof(struct kvd_config, log_level), KVD_LOG_INFO},
		{"--log_level=debug", offsetof(struct kvd_config, log_level), KVD_LOG_DEBUG},
		{"--socket-mode=777", offsetof(struct kvd_config, socket_mode), 0777},
		{"--poll-ms=1", offsetof(struct kvd_config, poll_ms), 1},
	};
	static const char *const pages[] = {"auto", "hugetlb", "thp", "4k"};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct config_loaded loaded = CONFIG_LOAD("[pool a]\nblocks=1\n", cases[i].argument);
		uint32_t value;

		config_assert_loads(&loaded);
		memcpy(&value, (uint8_t *)&loaded.config + cases[i].offset, sizeof(value));
		assert_int_equal(value, cases[i].value);
		kvd_config_free(&loaded.config);
	}
	for (unsigned i = 0; i < 4; i++) {
		char text[64];
		struct config_loaded loaded;

		snprintf(text, sizeof(text), "[pool a]\nblocks=1\npages=%s\n", pages[i]);
		loaded = CONFIG_LOAD(text);
		config_assert_loads(&loaded);
		assert_int_equal(loaded.config.pools[0].pages, i);
		kvd_config_free(&loaded.config);
	}
}

static void sizes_take_units(void **state)
{
	static const struct {
		const char *argument;
		uint64_t bytes;
	} cases[] = {
		{"pool.a.tables_limit=65536", 65536},    {"pool.a.tables_limit=64K", 65536},
		{"pool.a.tables_limit=64k", 65536},      {"pool.a.tables_limit=3m", 3u << 20},
		{"pool.a.tables_limit=64G", 1ull << 36},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct config_loaded loaded = CONFIG_LOAD("[pool a]\nblocks=1\n", "--set", cases[i].argument);

		config_assert_loads(&loaded);
		assert_true(loaded.config.pools[0].tables_limit_bytes == cases[i].bytes);
		kvd_config_free(&loaded.config);
	}
}

static void a_socket_path_may_fill_its_address(void **state)
{
	char option[16 + 109];
	struct config_loaded loaded;

	(void)state;
	snprintf(option, sizeof(option), "--socket=/%0106d", 0);
	loaded = CONFIG_LOAD("[pool a]\nblocks=1\n", option);
	config_assert_loads(&loaded);
	assert_int_equal(strlen(loaded.config.socket), 107);
	kvd_config_free(&loaded.config);
	snprintf(option, sizeof(option), "--socket=/%0107d", 0);
	loaded = CONFIG_LOAD("[pool a]\nblocks=1\n", option);
	config_assert_refused(&loaded, (const char *const[]){"socket", "108 bytes", "limit of 107", NULL},
			      "path");
}

static void the_command_line_wins_over_the_file(void **state)
{
	struct config_loaded loaded =
		CONFIG_LOAD("[daemon]\npoll_ms = 3\nsocket = /a\n[pool one]\nblocks = 1\nblock_tokens = 32\n",
			    "--poll-ms", "4", "--set", "pool.one.blocks=9", "--set=pool.two.blocks=7",
			    "--check", "--ready-fd=5");
	const struct kvd_config *config = &loaded.config;

	(void)state;
	config_assert_loads(&loaded);
	assert_int_equal(config->poll_ms, 4);
	assert_string_equal(config->socket, "/a");
	assert_true(config->check_only);
	assert_int_equal(config->ready_fd, 5);
	assert_int_equal(config->pool_count, 2);
	assert_string_equal(config->pools[0].name, "one");
	assert_int_equal(config->pools[0].data_blocks, 9);
	assert_int_equal(config->pools[0].geometry.block_tokens, 32);
	assert_string_equal(config->pools[1].name, "two");
	assert_int_equal(config->pools[1].data_blocks, 7);
	kvd_config_free(&loaded.config);
}

static void a_daemon_can_start_without_a_file(void **state)
{
	struct config_loaded loaded = CONFIG_LOAD("", "--set", "pool.a.blocks=3", "--socket=/tmp/s");

	(void)state;
	config_assert_loads(&loaded);
	assert_int_equal(loaded.config.pools[0].data_blocks, 3);
	kvd_config_free(&loaded.config);
	if (access(KVD_DEFAULT_CONFIG, F_OK) == 0)
		return;
	loaded = CONFIG_LOAD(NULL, "--set", "pool.a.blocks=3");
	config_assert_loads(&loaded);
	assert_null(loaded.config.file);
	kvd_config_free(&loaded.config);
	loaded = CONFIG_LOAD(NULL);
	assert_int_equal(loaded.ret, -EINVAL);
	assert_non_null(strstr(loaded.error, KVD_DEFAULT_CONFIG));
	assert_non_null(strstr(loaded.error, "[pool NAME]"));
}

static void a_section_may_be_opened_again(void **state)
{
	struct config_loaded loaded =
		CONFIG_LOAD("[pool a]\nblocks=1\n[daemon]\npoll_ms=3\n[pool a]\nlayers=2\n");

	(void)state;
	config_assert_loads(&loaded);
	assert_int_equal(loaded.config.pool_count, 1);
	assert_int_equal(loaded.config.pools[0].geometry.plane_count, 2);
	kvd_config_free(&loaded.config);
}

static void a_pool_can_be_on_a_device(void **state)
{
	struct config_loaded loaded = CONFIG_LOAD("[daemon]\nallow_mps=yes\n[pool a]\nblocks=1\n"
						  "[pool b]\nblocks=1\ndevices=cuda:0000:19:00.0\n"
						  "share=ipc\ndevice_grace_ms=7\n");

	(void)state;
	config_assert_loads(&loaded);
	assert_false(kvd_pool_config_is_cuda(&loaded.config.pools[0]));
	assert_true(kvd_pool_config_is_cuda(&loaded.config.pools[1]));
	assert_string_equal(loaded.config.pools[1].device, "cuda:0000:19:00.0");
	assert_int_equal(loaded.config.pools[1].share, KVD_SHARE_IPC);
	assert_int_equal(loaded.config.pools[1].device_grace_ms, 7);
	assert_int_equal(loaded.config.pools[1].allow_mps, 1);
	kvd_config_free(&loaded.config);
}

static void every_key_is_printed_with_default_and_range(void **state)
{
	char *keys = print(kvd_config_print_keys);
	unsigned lines = 0;

	(void)state;
	for (const char *c = keys; *c; c++)
		lines += *c == '\n';
	assert_int_equal(lines, 10 + 13);
	assert_non_null(strstr(keys, "daemon\tpoll_ms\t2\t1 to 10\t"));
	assert_non_null(strstr(keys, "pool\tblocks\t-\t1 to 67108864\t"));
	assert_non_null(strstr(keys, "pool\tdevices\thost\thost, cuda:N,"));
	free(keys);
}

/* What help promises is what is enforced: the numbers of each range are accepted, their neighbours are not. */
static void ranges_in_the_help_are_the_limits(void **state)
{
	char *keys = print(kvd_config_print_keys);
	char *rest = keys;
	char *line;
	unsigned ranges = 0;

	(void)state;
	while ((line = strsep(&rest, "\n")) && *line) {
		const char *section = strsep(&line, "\t");
		const char *key = strsep(&line, "\t");
		const char *range;
		unsigned long long low;
		unsigned long long high;

		strsep(&line, "\t");
		range = strsep(&line, "\t");
		if (strstr(range, "K to") || sscanf(range, "%llu to %llu", &low, &high) != 2)
			continue;
		ranges++;
		for (int i = 0; i < 4; i++) {
			unsigned long long value = (unsigned long long[]){low, high, low - 1, high + 1}[i];
			char text[128];
			struct config_loaded loaded;

			if (i == 2 && !low)
				continue;
			snprintf(text, sizeof(text), "%s[%s%s]\n%s=%llu\n",
				 strcmp(key, "blocks") ? "[pool a]\nblocks=1\n" : "", section,
				 strcmp(section, "pool") ? "" : " a", key, value);
			loaded = CONFIG_LOAD(text);
			if (i < 2)
				config_assert_loads(&loaded);
			else
				assert_int_equal(loaded.ret, -EINVAL);
			if (!loaded.ret)
				kvd_config_free(&loaded.config);
		}
	}
	assert_int_equal(ranges, 9);
	free(keys);
}

static void help_and_version_end_before_anything_is_read(void **state)
{
	int kept = dup(STDOUT_FILENO);
	int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct config_loaded help;
	struct config_loaded version;

	(void)state;
	fflush(stdout);
	dup2(sink, STDOUT_FILENO);
	help = CONFIG_LOAD(NULL, "--config", "/no/such/file", "--help");
	version = CONFIG_LOAD(NULL, "--config", "/no/such/file", "--version");
	fflush(stdout);
	dup2(kept, STDOUT_FILENO);
	close(kept);
	close(sink);
	assert_int_equal(help.ret, 0);
	assert_true(help.config.help);
	assert_int_equal(version.ret, 0);
	assert_true(version.config.version);
	kvd_config_free(&help.config);
	kvd_config_free(&version.config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pool_of_blocks_alone_has_the_defaults),
		cmocka_unit_test(the_default_plane_is_one_latent_of_bf16),
		cmocka_unit_test(every_key_is_read),
		cmocka_unit_test(every_choice_is_its_number),
		cmocka_unit_test(sizes_take_units),
		cmocka_unit_test(a_socket_path_may_fill_its_address),
		cmocka_unit_test(the_command_line_wins_over_the_file),
		cmocka_unit_test(a_daemon_can_start_without_a_file),
		cmocka_unit_test(a_section_may_be_opened_again),
		cmocka_unit_test(a_pool_can_be_on_a_device),
		cmocka_unit_test(every_key_is_printed_with_default_and_range),
		cmocka_unit_test(ranges_in_the_help_are_the_limits),
		cmocka_unit_test(help_and_version_end_before_anything_is_read),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, config_load_setup, config_load_teardown);
}
