/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the configuration: collects texts, reads them by kind, then derives what needs several of them. */
#include "config.h"

#include "config_internal.h"

#include "log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/version.h>

_Static_assert(KVD_LOOP_IO_URING == 1 && KVD_LOOP_IO_URING_PLAIN == 2 && KVD_LOOP_EPOLL == 3,
	       "the choices of event_loop are in the order of the enum");
_Static_assert(KVD_LOG_WARNING == 1 && KVD_LOG_INFO == 2 && KVD_LOG_DEBUG == 3, "as log_level's");
_Static_assert(KVD_PAGES_HUGETLB == 1 && KVD_PAGES_THP == 2 && KVD_PAGES_4K == 3, "as pages'");
_Static_assert(KVD_SHARE_IPC == 1 && KVD_SHARE_FD == 2, "as share's");
_Static_assert(KVW_POOL_LAYER_MAJOR == KVW_POOL_BLOCK_MAJOR + 1, "as layout's");

bool kvd_pool_config_is_cuda(const struct kvd_pool_config *pool)
{
	return strcmp(pool->device, "host") != 0;
}

static int read_keys(struct kvd_load *load, const struct kvd_key *keys, const struct kvd_setting *settings,
		     int count, const char *section, const char *missing_at, void *base)
{
	int ret = 0;

	for (int i = 0; i < count && !ret; i++) {
		struct kvd_context context = {load, settings[i].where, section, &keys[i], settings[i].text};

		if (!context.text) {
			context.text = keys[i].fallback;
			context.where = "default";
		}
		if (!context.text)
			return kvd_load_fail(load, missing_at, "%s has no '%s'; add '%s = N' (%s)", section,
					     keys[i].name, keys[i].name, keys[i].range);
		ret = kvd_value_read(&context, base);
	}
	return ret;
}

static int place(struct kvd_load *load, struct kvd_pool_draft *draft, const char *section)
{
	struct kvd_pool_config *pool = &draft->config;
	int ret;

	pool->geometry.blocks = 1 + pool->max_engines + pool->data_blocks;
	ret = kvw_geometry_place(&pool->geometry);
	if (ret < 0)
		return kvd_load_fail(
			load, draft->where,
			"%s of %u blocks of %u tokens and %u planes is above the limit of 2^62 bytes; "
			"lower 'blocks'",
			section, pool->data_blocks, pool->geometry.block_tokens, pool->geometry.plane_count);
	return 0;
}

/* A setting that would have no effect is a mistake. */
static int refuse_useless(struct kvd_load *load, const struct kvd_pool_draft *draft, const char *section)
{
	int share = kvd_key_find(kvd_pool_keys, KVD_POOL_KEYS, "share");
	bool cuda = kvd_pool_config_is_cuda(&draft->config);
	int pages = kvd_key_find(kvd_pool_keys, KVD_POOL_KEYS, "pages");

	if (cuda && draft->config.pages != KVD_PAGES_AUTO)
		return kvd_load_fail(
			load, draft->settings[pages].where,
			"%s pages = '%s' is for memory of the machine, but devices = '%s'; leave it "
			"out",
			section, draft->settings[pages].text, draft->config.device);
	if (!cuda && draft->config.share != KVD_SHARE_AUTO)
		return kvd_load_fail(
			load, draft->settings[share].where,
			"%s share = '%s' is for CUDA devices, but devices = 'host'; leave it out, or "
			"set 'devices = cuda:0'",
			section, draft->settings[share].text);
	return 0;
}

static int finish_pool(struct kvd_load *load, struct kvd_pool_draft *draft)
{
	int planes = kvd_key_find(kvd_pool_keys, KVD_POOL_KEYS, "planes");
	char section[KVW_MAX_NAME_BYTES + 9];
	struct kvd_context context = {load, draft->settings[planes].where, section, &kvd_pool_keys[planes],
				      NULL};
	int ret;

	snprintf(section, sizeof(section), "[pool %s]", draft->config.name);
	ret = read_keys(load, kvd_pool_keys, draft->settings, KVD_POOL_KEYS, section, draft->where, draft);
	if (ret < 0)
		return ret;
	ret = refuse_useless(load, draft, section);
	if (ret < 0)
		return ret;
	draft->config.allow_mps = load->config.allow_mps;
	context.text = draft->planes;
	ret = kvd_planes_read(&context, draft);
	if (!ret)
		ret = place(load, draft, section);
	if (!draft->config.quota_blocks)
		draft->config.quota_blocks = UINT64_MAX;
	return ret;
}

static int finish(struct kvd_load *load)
{
	struct kvd_config *config = &load->config;
	int ret = read_keys(load, kvd_daemon_keys, load->settings, KVD_DAEMON_KEYS, "[daemon]", load->path,
			    config);

	if (!ret && !load->pool_count)
		return kvd_load_fail(load, load->path,
				     "no pool is configured; add a section [pool NAME] with 'blocks = N', or "
				     "--set pool.NAME.blocks=N");
	for (uint32_t i = 0; i < load->pool_count && !ret; i++)
		ret = finish_pool(load, load->pools[i]);
	if (ret < 0)
		return ret;
	config->pools = calloc(load->pool_count, sizeof(*config->pools));
	if (!config->pools)
		return -ENOMEM;
	for (uint32_t i = 0; i < load->pool_count; i++)
		config->pools[i] = load->pools[i]->config;
	config->pool_count = load->pool_count;
	return 0;
}

static int load_all(struct kvd_load *load, int argc, char **argv)
{
	int ret = kvd_load_args(load, argc, argv, false);

	if (!ret && load->config.help) {
		kvd_config_usage(stdout);
		return 0;
	}
	if (!ret && load->config.version) {
		printf("kvpoold " KVP_VERSION_STRING "\n");
		return 0;
	}
	if (!ret)
		ret = kvd_load_file(load);
	if (!ret)
		ret = kvd_load_args(load, argc, argv, true);
	return ret ? ret : finish(load);
}

int kvd_config_load(int argc, char **argv, struct kvd_config *out, char *error, size_t capacity)
{
	struct kvd_load *load = calloc(1, sizeof(*load));
	int ret = -ENOMEM;

	error[0] = '\0';
	if (load) {
		load->config.ready_fd = -1;
		load->path = KVD_DEFAULT_CONFIG;
		load->error = error;
		load->capacity = capacity;
		ret = load_all(load, argc, argv);
		kvd_load_clear(load);
	}
	if (ret == -ENOMEM && !error[0])
		snprintf(error, capacity, "out of memory while the configuration was read");
	if (ret < 0 && load)
		kvd_config_free(&load->config);
	else if (load)
		*out = load->config;
	free(load);
	return ret;
}

void kvd_config_free(struct kvd_config *config)
{
	free(config->pools);
	free(config->file);
	config->pools = NULL;
	config->file = NULL;
	config->pool_count = 0;
}
