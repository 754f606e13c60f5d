/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: defaults, what wins over what, and one clear sentence for each way to get it wrong. A refusal is held to name
 * the place, the key and the value or limit, not to exact wording.
 */
#include "daemon/config.h"
#include "daemon/log.h"

#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ARGS 24

struct loaded {
	struct kvd_config config;
	int ret;
	char error[512];
};

static char *dir;
static char path[256];

static int make_dir(void **state)
{
	(void)state;
	dir = kvt_mkdtemp();
	snprintf(path, sizeof(path), "%s/c", dir);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	kvt_rmdir(dir);
	return 0;
}

static void write_file(const char *text, size_t length)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, length), (ssize_t)length);
	close(fd);
}

/* `text` NULL: no file is named. The arguments end with NULL. */
static struct loaded load(const char *text, const char *const *more)
{
	const char *argv[MAX_ARGS] = {"kvpoold"};
	struct loaded loaded = {.error = "untouched"};
	int argc = 1;

	if (text) {
		write_file(text, strlen(text));
		argv[argc++] = "-c";
		argv[argc++] = path;
	}
	for (; *more && argc < MAX_ARGS; more++)
		argv[argc++] = *more;
	loaded.ret = kvd_config_load(argc, (char **)(uintptr_t)argv, &loaded.config, loaded.error,
				     sizeof(loaded.error));
	return loaded;
}

static struct loaded load_all(const char *const *texts)
{
	return load(texts[0], texts + 1);
}

/* The file's text or NULL, then the arguments. */
#define LOAD(...) load_all((const char *const[]){__VA_ARGS__, NULL})

static void assert_loads(const struct loaded *loaded)
{
	if (loaded->ret)
		fail_msg("refused: %s", loaded->error);
	assert_string_equal(loaded->error, "");
}

static void a_pool_of_blocks_alone_has_the_defaults(void **state)
{
	struct loaded loaded = LOAD("[pool main]\nblocks = 60000\n");
	const struct kvd_config *config = &loaded.config;
	const struct kvd_pool_config *pool = config->pools;

	(void)state;
	assert_loads(&loaded);
	assert_string_equal(config->socket, "/run/kvpool/kvpoold.sock");
	assert_int_equal(config->socket_mode, 0660);
	assert_true(config->socket_group == (gid_t)-1);
	assert_int_equal(config->event_loop, KVD_LOOP_AUTO);
	assert_int_equal(config->poll_ms, 2);
	assert_int_equal(config->max_sessions, 256);
	assert_int_equal(config->log_level, KVD_LOG_INFO);
	assert_int_equal(config->admin_count, 0);
	assert_int_equal(config->ready_fd, -1);
	assert_string_equal(config->file, path);
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
	struct loaded loaded = LOAD("[pool main]\nblocks = 100\n");
	const struct kvw_geometry *geometry;
	const struct kvw_plane *plane;

	(void)state;
	assert_loads(&loaded);
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
	struct loaded loaded = LOAD("; a comment\n"
				    "# another\n"
				    "[daemon]\n"
				    "socket = /tmp/x.sock\n"
				    "  socket_mode = 0600\n"
				    "socket_group = 12\n"
				    "event_loop = epoll ; of the loop\n"
				    "poll_ms = 10\n"
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
	assert_loads(&loaded);
	assert_string_equal(config->socket, "/tmp/x.sock");
	assert_int_equal(config->socket_mode, 0600);
	assert_int_equal(config->socket_group, 12);
	assert_int_equal(config->event_loop, KVD_LOOP_EPOLL);
	assert_int_equal(config->poll_ms, 10);
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
		struct loaded loaded = LOAD("[pool a]\nblocks=1\n", cases[i].argument);
		uint32_t value;

		assert_loads(&loaded);
		memcpy(&value, (uint8_t *)&loaded.config + cases[i].offset, sizeof(value));
		assert_int_equal(value, cases[i].value);
		kvd_config_free(&loaded.config);
	}
	for (unsigned i = 0; i < 4; i++) {
		char text[64];
		struct loaded loaded;

		snprintf(text, sizeof(text), "[pool a]\nblocks=1\npages=%s\n", pages[i]);
		loaded = LOAD(text);
		assert_loads(&loaded);
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
		struct loaded loaded = LOAD("[pool a]\nblocks=1\n", "--set", cases[i].argument);

		assert_loads(&loaded);
		assert_true(loaded.config.pools[0].tables_limit_bytes == cases[i].bytes);
		kvd_config_free(&loaded.config);
	}
}

static void the_command_line_wins_over_the_file(void **state)
{
	struct loaded loaded =
		LOAD("[daemon]\npoll_ms = 3\nsocket = /a\n[pool one]\nblocks = 1\nblock_tokens = 32\n",
		     "--poll-ms", "4", "--set", "pool.one.blocks=9", "--set=pool.two.blocks=7", "--check",
		     "--ready-fd=5");
	const struct kvd_config *config = &loaded.config;

	(void)state;
	assert_loads(&loaded);
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
	struct loaded loaded = LOAD("", "--set", "pool.a.blocks=3", "--socket=/tmp/s");

	(void)state;
	assert_loads(&loaded);
	assert_int_equal(loaded.config.pools[0].data_blocks, 3);
	kvd_config_free(&loaded.config);
	if (access(KVD_DEFAULT_CONFIG, F_OK) == 0)
		return;
	loaded = LOAD(NULL, "--set", "pool.a.blocks=3");
	assert_loads(&loaded);
	assert_null(loaded.config.file);
	kvd_config_free(&loaded.config);
	loaded = LOAD(NULL);
	assert_int_equal(loaded.ret, -EINVAL);
	assert_non_null(strstr(loaded.error, KVD_DEFAULT_CONFIG));
	assert_non_null(strstr(loaded.error, "[pool NAME]"));
}

static void a_section_may_be_opened_again(void **state)
{
	struct loaded loaded = LOAD("[pool a]\nblocks=1\n[daemon]\npoll_ms=3\n[pool a]\nlayers=2\n");

	(void)state;
	assert_loads(&loaded);
	assert_int_equal(loaded.config.pool_count, 1);
	assert_int_equal(loaded.config.pools[0].geometry.plane_count, 2);
	kvd_config_free(&loaded.config);
}

/* -------- planes */

struct plane_row {
	uint32_t layer, role, dtype, layout, heads, dim;
	uint64_t page_bytes;
};

static void assert_planes(const char *planes, const char *layers, const struct plane_row *rows,
			  uint32_t count)
{
	char set_planes[256];
	char set_layers[64];
	struct loaded loaded;
	const struct kvw_geometry *geometry;

	snprintf(set_planes, sizeof(set_planes), "pool.a.planes=%s", planes);
	snprintf(set_layers, sizeof(set_layers), "pool.a.layers=%s", layers);
	loaded = LOAD("[pool a]\nblocks=1\nblock_tokens=32\n", "--set", set_planes, "--set", set_layers);
	assert_loads(&loaded);
	geometry = &loaded.config.pools[0].geometry;
	assert_int_equal(geometry->plane_count, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct kvw_plane *plane = &geometry->planes[i];

		assert_int_equal(plane->layer, rows[i].layer);
		assert_int_equal(plane->role, rows[i].role);
		assert_int_equal(plane->dtype, rows[i].dtype);
		assert_int_equal(plane->layout, rows[i].layout);
		assert_int_equal(plane->heads, rows[i].heads);
		assert_int_equal(plane->dim, rows[i].dim);
		assert_int_equal(plane->page_bytes, rows[i].page_bytes);
		assert_int_equal(plane->kernel_page_tokens, 32);
	}
	kvd_config_free(&loaded.config);
}

static void planes_go_by_layer_then_by_the_order_given(void **state)
{
	static const struct plane_row rows[] = {
		{0, KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 4, 128, 32768},
		{0, KVW_ROLE_V, KVW_DTYPE_F16, KVW_LAYOUT_HND, 4, 64, 16384},
		{1, KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 4, 128, 32768},
		{1, KVW_ROLE_V, KVW_DTYPE_F16, KVW_LAYOUT_HND, 4, 64, 16384},
		{1, KVW_ROLE_INDEX_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 1, 128, 8192},
		{2, KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 4, 128, 32768},
		{2, KVW_ROLE_V, KVW_DTYPE_F16, KVW_LAYOUT_HND, 4, 64, 16384},
		{2, KVW_ROLE_INDEX_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 1, 128, 8192},
	};

	(void)state;
	assert_planes("k bf16 4x128 nhd, v f16 hnd 4x64,index_k  bf16 1x128 layers 1-2", "3", rows, 8);
}

static void every_latent_is_known(void **state)
{
	static const struct plane_row rows[][1] = {
		{{0, KVW_ROLE_LATENT, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 1, 576, 36864}},
		{{0, KVW_ROLE_LATENT, KVW_DTYPE_F16, KVW_LAYOUT_NHD, 1, 576, 36864}},
		{{0, KVW_ROLE_LATENT, KVW_DTYPE_F32, KVW_LAYOUT_NHD, 1, 576, 73728}},
		{{0, KVW_ROLE_LATENT, KVW_DTYPE_FP8_V32, KVW_LAYOUT_NHD, 1, 1, 20992}},
		{{0, KVW_ROLE_OPAQUE, KVW_DTYPE_U8, KVW_LAYOUT_NHD, 1, 16, 16}},
	};

	(void)state;
	assert_planes("latent bf16", "1", rows[0], 1);
	assert_planes("latent f16", "1", rows[1], 1);
	assert_planes("latent f32", "1", rows[2], 1);
	assert_planes("latent fp8_v32", "1", rows[3], 1);
	assert_planes("opaque 16", "1", rows[4], 1);
}

static void one_role_may_differ_between_layers(void **state)
{
	static const struct plane_row rows[] = {
		{0, KVW_ROLE_K, KVW_DTYPE_E4M3, KVW_LAYOUT_NHD, 8, 128, 32768},
		{2, KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_HND, 2, 64, 8192},
	};

	(void)state;
	assert_planes("k bf16 2x64 hnd layers 2, k e4m3 8x128 layers 0-0", "3", rows, 2);
}

static void sixty_layers_of_three_planes_fit(void **state)
{
	struct loaded loaded =
		LOAD("[pool m]\nblocks=10\nblock_tokens=128\nlayers=60\n"
		     "planes = k bf16 4x128 nhd, v bf16 4x128 nhd, index_k bf16 1x128 layers 3-59\n");

	(void)state;
	assert_loads(&loaded);
	assert_int_equal(loaded.config.pools[0].geometry.plane_count, 177);
	kvd_config_free(&loaded.config);
}

/* -------- refusals */

struct refusal {
	const char *text;     /* of the file */
	const char *needs[4]; /* each must stand in the sentence */
};

static void assert_refused(const struct loaded *loaded, const char *const *needs, const char *what)
{
	if (!loaded->ret)
		fail_msg("accepted: %s", what);
	assert_int_equal(loaded->ret, -EINVAL);
	for (unsigned i = 0; i < 4 && needs[i]; i++)
		if (!strstr(loaded->error, needs[i]))
			fail_msg("'%s' lacks '%s'; from: %s", loaded->error, needs[i], what);
	/* One sentence: no line feed, and room to spare. */
	assert_null(strchr(loaded->error, '\n'));
}

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
		{"[pool a]\nblocks=1\ntables_limit=1T\n", {":3:", "'1T'", "not a size"}},
		{"[pool a]\nblocks=1\ntables_limit=1GB\n", {":3:", "'1GB'", "not a size"}},
		{"[pool a]\nblocks=1\ntables_limit=G\n", {":3:", "'G'", "not a size"}},
		{"[pool a]\nblocks=1\ndevices=cuda:0\n",
		 {":3:", "'cuda:0'", "devices other than host are not supported by this version"}},
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
		struct loaded loaded = LOAD(cases[i].text);

		assert_refused(&loaded, cases[i].needs, cases[i].text);
		snprintf(at, sizeof(at), "%s:", path);
		assert_ptr_equal(strstr(loaded.error, at), loaded.error);
	}
}

static void wrong_planes_are_refused_with_the_item(void **state)
{
	static const struct refusal cases[] = {
		{"", {"planes", "role"}},
		{"latent", {"'latent'", "dtype"}},
		{"latent bf17", {"'latent bf17'", "dtype"}},
		{"latent e4m3", {"fp8_v32"}},
		{"latent u8", {"dtype"}},
		{"latent bf16 1x576", {"leave HxD out"}},
		{"latent bf16 nhd", {"leave it out"}},
		{"latents bf16", {"role", "index_k"}},
		{"k bf16", {"'k bf16'", "HxD"}},
		{"k bf16 4x", {"HxD"}},
		{"k bf16 x128", {"HxD"}},
		{"k bf16 0x128", {"HxD"}},
		{"k bf16 4x0", {"HxD"}},
		{"k bf16 4097x1", {"4096"}},
		{"k bf16 1x65537", {"65536"}},
		{"k bf16 4x128 4x128", {"HxD"}},
		{"k bf16 4x128 nhd hnd", {"too many"}},
		{"k bf16 4x128 rows", {"not known"}},
		{"k fp8_v32 4x128", {"latent only"}},
		{"k bf16 4x128 layers", {"layers 3-59"}},
		{"k bf16 4x128 layers x", {"layers 3-59"}},
		{"k bf16 4x128 layers 2-1", {"layers 3-59"}},
		{"k bf16 4x128 layers 0-4", {"layers - 1"}},
		{"k bf16 4x128 layers 0-3 layers 1", {"too many"}},
		{"index_k bf16 2x128", {"one head"}},
		{"opaque", {"opaque"}},
		{"opaque 0", {"1 to"}},
		{"opaque x", {"opaque 16"}},
		{"opaque 16 1x2", {"leave HxD out"}},
		{"opaque 16 hnd", {"leave it out"}},
		{"k bf16 4x128, k bf16 4x128", {"layer 0", "role k twice"}},
		{"k bf16 4x128 layers 0-2, k bf16 1x1 layers 2-3", {"layer 2", "role k twice"}},
		{"k bf16 4x128,", {"role"}},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[256];
		struct loaded loaded;

		snprintf(text, sizeof(text), "[pool a]\nblocks=1\nlayers=4\nplanes=%s\n", cases[i].text);
		loaded = LOAD(text);
		assert_refused(&loaded, cases[i].needs, text);
		assert_non_null(strstr(loaded.error, ":4: [pool a] planes = '"));
	}
}

static void more_planes_than_the_limit_are_refused(void **state)
{
	struct loaded loaded = LOAD("[pool a]\nblocks=1\nlayers=257\nplanes=k bf16 1x8, v bf16 1x8\n");
	static const char *const needs[4] = {":4:", "planes", "limit of 512"};

	(void)state;
	assert_refused(&loaded, needs, "514 planes");
}

static void a_pool_past_all_memory_is_refused(void **state)
{
	struct loaded loaded =
		LOAD("[pool a]\nblocks=67108864\nblock_tokens=65536\nplanes=k f32 4096x65536\n");
	static const char *const needs[4] = {":1:", "[pool a]", "67108864", "2^62"};

	(void)state;
	assert_refused(&loaded, needs, "too large");
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
		struct loaded loaded = load("[pool a]\nblocks=1\n", cases[i].arguments);

		assert_refused(&loaded, cases[i].needs, cases[i].arguments[0]);
	}
}

static void files_that_cannot_be_read_are_named(void **state)
{
	struct loaded loaded = LOAD(NULL, "--config", "/no/such/file");

	(void)state;
	assert_int_equal(loaded.ret, -ENOENT);
	assert_non_null(strstr(loaded.error, "/no/such/file"));
	assert_non_null(strstr(loaded.error, "--config"));
	loaded = LOAD(NULL, "--config", "/tmp");
	assert_int_equal(loaded.ret, -EISDIR);
	assert_non_null(strstr(loaded.error, "/tmp"));
}

/* inih would cut it at its own limit and say nothing. */
static void long_lines_and_nul_bytes_are_refused(void **state)
{
	char text[600];
	struct loaded loaded;
	static const char *const long_needs[4] = {":2:", "limit"};
	static const char *const nul_needs[4] = {":2:", "NUL"};
	const char *const args[] = {"--config", path, NULL};

	(void)state;
	snprintf(text, sizeof(text), "[pool a]\nblocks=1%500s\n", "");
	loaded = LOAD(text);
	assert_refused(&loaded, long_needs, "long line");
	write_file("[pool a]\nblocks=1\0x\n", 20);
	loaded = load(NULL, args);
	assert_refused(&loaded, nul_needs, "NUL byte");
}

static void too_many_pools_are_refused(void **state)
{
	char text[64 * 32];
	size_t used = 0;
	struct loaded loaded;
	static const char *const needs[4] = {"limit of 64"};

	(void)state;
	for (unsigned i = 0; i < 64; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "[pool p%u]\nblocks=1\n", i);
	loaded = LOAD(text);
	assert_loads(&loaded);
	assert_int_equal(loaded.config.pool_count, 64);
	kvd_config_free(&loaded.config);
	loaded = LOAD(text, "--set=pool.more.blocks=1");
	assert_refused(&loaded, needs, "65 pools");
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

/* -------- help */

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

static void every_key_is_printed_with_default_and_range(void **state)
{
	char *keys = print(kvd_config_print_keys);
	unsigned lines = 0;

	(void)state;
	for (const char *c = keys; *c; c++)
		lines += *c == '\n';
	assert_int_equal(lines, 8 + 11);
	assert_non_null(strstr(keys, "daemon\tpoll_ms\t2\t1 to 10\t"));
	assert_non_null(strstr(keys, "pool\tblocks\t-\t1 to 67108864\t"));
	assert_non_null(strstr(keys, "pool\tdevices\thost\thost\t"));
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
			struct loaded loaded;

			if (i == 2 && !low)
				continue;
			snprintf(text, sizeof(text), "%s[%s%s]\n%s=%llu\n",
				 strcmp(key, "blocks") ? "[pool a]\nblocks=1\n" : "", section,
				 strcmp(section, "pool") ? "" : " a", key, value);
			loaded = LOAD(text);
			if (i < 2)
				assert_loads(&loaded);
			else
				assert_int_equal(loaded.ret, -EINVAL);
			if (!loaded.ret)
				kvd_config_free(&loaded.config);
		}
	}
	assert_int_equal(ranges, 7);
	free(keys);
}

static void help_and_version_end_before_anything_is_read(void **state)
{
	int kept = dup(STDOUT_FILENO);
	int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct loaded help;
	struct loaded version;

	(void)state;
	fflush(stdout);
	dup2(sink, STDOUT_FILENO);
	help = LOAD(NULL, "--config", "/no/such/file", "--help");
	version = LOAD(NULL, "--config", "/no/such/file", "--version");
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
		cmocka_unit_test(the_command_line_wins_over_the_file),
		cmocka_unit_test(a_daemon_can_start_without_a_file),
		cmocka_unit_test(a_section_may_be_opened_again),
		cmocka_unit_test(planes_go_by_layer_then_by_the_order_given),
		cmocka_unit_test(every_latent_is_known),
		cmocka_unit_test(one_role_may_differ_between_layers),
		cmocka_unit_test(sixty_layers_of_three_planes_fit),
		cmocka_unit_test(a_wrong_file_is_refused_at_its_line),
		cmocka_unit_test(wrong_planes_are_refused_with_the_item),
		cmocka_unit_test(more_planes_than_the_limit_are_refused),
		cmocka_unit_test(a_pool_past_all_memory_is_refused),
		cmocka_unit_test(a_wrong_command_line_is_refused),
		cmocka_unit_test(files_that_cannot_be_read_are_named),
		cmocka_unit_test(long_lines_and_nul_bytes_are_refused),
		cmocka_unit_test(too_many_pools_are_refused),
		cmocka_unit_test(a_small_error_buffer_is_not_overrun),
		cmocka_unit_test(every_key_is_printed_with_default_and_range),
		cmocka_unit_test(ranges_in_the_help_are_the_limits),
		cmocka_unit_test(help_and_version_end_before_anything_is_read),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
