/* SPDX-License-Identifier: Apache-2.0 */
/* A pool with engines to play with, and how a run tells what it did. */
#include "world.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvpool/error.h"

static struct world *running;

uint64_t world_below(struct world *w, uint64_t bound)
{
	return kvt_rng_below(&w->rng, bound);
}

bool world_chance(struct world *w, unsigned percent)
{
	return world_below(w, 100) < percent;
}

void world_log(struct world *w, const char *format, ...)
{
	char *line = w->log[w->logged++ % WORLD_LOG];
	va_list args;
	int used;

	used = snprintf(line, WORLD_LOG_BYTES, "%6lu: ", (unsigned long)w->op);
	va_start(args, format);
	vsnprintf(line + used, WORLD_LOG_BYTES - (size_t)used, format, args);
	va_end(args);
}

void world_log_more(struct world *w, const char *format, ...)
{
	char *line = w->log[(w->logged + WORLD_LOG - 1) % WORLD_LOG];
	size_t used = strlen(line);
	va_list args;

	va_start(args, format);
	vsnprintf(line + used, WORLD_LOG_BYTES - used, format, args);
	va_end(args);
}

static void print_log(const struct world *w)
{
	uint64_t i;

	fprintf(stderr, "KVP_SEED=%lu, operation %lu; %d data blocks, %d sinks. The last operations:\n",
		(unsigned long)w->seed, (unsigned long)w->op, w->model.blocks - w->model.sinks - 1,
		w->model.sinks);
	for (i = w->logged > WORLD_LOG ? w->logged - WORLD_LOG : 0; i < w->logged; i++)
		fprintf(stderr, "  %s\n", w->log[i % WORLD_LOG]);
}

void world_fail(struct world *w, const char *what)
{
	print_log(w);
	fail_msg("KVP_SEED=%lu, operation %lu: %s", (unsigned long)w->seed, (unsigned long)w->op, what);
	abort();
}

void world_judge(struct world *w)
{
	if (w->model.fault[0])
		world_fail(w, w->model.fault);
}

/* An assertion of the daemon's own: say first how it came to that. */
static void on_abort(int signal_number)
{
	(void)signal_number;
	signal(SIGABRT, SIG_DFL);
	if (running)
		print_log(running);
	raise(SIGABRT);
}

const char *world_error(int rc)
{
	switch (rc) {
#define ERROR_TEXT(name, number, text)                                                                       \
	case -(number):                                                                                      \
		return #name;
		KVP_ERROR_MAP(ERROR_TEXT)
#undef ERROR_TEXT
	default:
		return rc >= 0 ? "done" : strerror(-rc);
	}
}

/* Some runs make hashes that all fall into one bucket of the directory, so that it fills up. */
static void make_hash(struct world *w, int number, uint32_t bucket_mask)
{
	uint32_t i;

	do {
		for (i = 0; i < w->hash_bytes; i++)
			w->hash[number][i] = (uint8_t)world_below(w, 256);
	} while (kvw_index_key(1, w->pool->epoch, 0, w->hash[number], w->hash_bytes) & bucket_mask);
}

static void make_hashes(struct world *w)
{
	uint32_t mask = world_chance(w, 40) ? w->pool->bucket_count - 1 : 0;
	int width = 1 + (int)world_below(w, 3);
	int i;

	w->hashes = 6 + (int)world_below(w, MDL_HASHES - 6);
	w->hash_bytes = world_chance(w, 50) ? 32 : 4 + (uint32_t)world_below(w, 61);
	for (i = 0; i < w->hashes; i++) {
		make_hash(w, i, mask);
		w->hash_parent[i] = (i + width) / width - 2;
	}
}

static void make_tenants(struct world *w, int data_blocks)
{
	int i;

	w->tenants = 1 + (int)world_below(w, MDL_TENANTS);
	w->namespaces = 1 + (int)world_below(w, 2);
	for (i = 0; i < w->tenants; i++) {
		w->tenant[i].uid = 1000 + (uint32_t)i;
		w->tenant[i].quota_blocks =
			world_chance(w, 50) ? UINT64_MAX : 2 + world_below(w, 2 * (uint64_t)data_blocks);
		w->model.quota[i] = w->tenant[i].quota_blocks;
	}
}

static void make_pool(struct world *w, uint32_t sinks, uint32_t data_blocks)
{
	struct kvd_pool_params params = {
		.pool = 3,
		.data_blocks = data_blocks,
		.sink_blocks = sinks,
		.incarnation = 77,
		.seed = kvt_rng_next(&w->rng),
		.policy = &kvd_policy_lru,
	};
	struct kvw_directory_layout layout;

	kvw_directory_layout(1 + sinks + data_blocks, &layout);
	w->directory_bytes = layout.bytes;
	w->state = aligned_alloc(KVW_PAGE_BYTES, kvd_pool_state_bytes(1 + sinks + data_blocks));
	w->directory = aligned_alloc(KVW_PAGE_BYTES, layout.bytes);
	assert_non_null(w->state);
	assert_non_null(w->directory);
	memset(w->state, 0, kvd_pool_state_bytes(1 + sinks + data_blocks));
	memset(w->directory, 0, layout.bytes);
	params.state = w->state;
	params.directory = w->directory;
	assert_int_equal(kvd_pool_create(&params, &w->pool), 0);
}

void world_create(struct world *w, uint64_t seed)
{
	uint32_t sinks, data_blocks;

	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->rng.state = seed;
	w->next_session = 1;
	w->check_each = true;
	running = w;
	signal(SIGABRT, on_abort);
	sinks = 2 + (uint32_t)world_below(w, 4);
	data_blocks = 5 + (uint32_t)world_below(w, 36);
	mdl_init(&w->model, (int)sinks, (int)data_blocks);
	make_pool(w, sinks, data_blocks);
	make_tenants(w, (int)data_blocks);
	make_hashes(w);
	w->unchained = world_chance(w, 40);
}

void world_destroy(struct world *w)
{
	running = NULL;
	kvd_pool_destroy(w->pool);
	free(w->state);
	free(w->directory);
}
