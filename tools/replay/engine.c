/* SPDX-License-Identifier: Apache-2.0 */
/* An engine process from connect to close. */
#include "engine.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "ipc/frame.h"
#include "syscalls.h"

/* Without any progress for so many times --timeout-ms, the pool cannot hold what is wanted at once. */
#define STUCK_TIMEOUTS 6u

static int tell_failure(struct rep_engine *engine, const char *what, int error, const char *detail)
{
	struct rep_event event = {.kind = REP_EVENT_FAILED, .engine = engine->index};

	snprintf(event.text, sizeof(event.text), "%s: %s (%s)", what, kvp_error_name(error), detail);
	(void)rep_event_send(engine->event_fd, &event);
	atomic_store(&engine->run->shared->stop, 1);
	return error;
}

int rep_engine_fail(struct rep_engine *engine, const char *what, int error)
{
	const char *detail = kvp_last_error();

	return tell_failure(engine, what, error, *detail ? detail : kvp_error_text(error));
}

int rep_engine_fail_alone(struct rep_engine *engine, const char *what, int error)
{
	return tell_failure(engine, what, error, kvp_error_text(error));
}

int rep_engine_step_done(struct rep_engine *engine, uint64_t step)
{
	const struct rep_device *device = engine->planes.device;
	int ret;

	if (!device) {
		kvp_step_done(engine->client, REP_TIMELINE, step);
		return 0;
	}
	ret = rep_device_status(device);
	if (ret)
		return rep_engine_fail_alone(engine, "copies to the device", ret);
	ret = kvp_step_done_on(engine->client, REP_TIMELINE, step, rep_device_stream(device));
	return ret ? rep_engine_fail(engine, "end of a step", ret) : 0;
}

/* KV of a replay means nothing to other engines: they share nothing with it. */
static int attach(struct rep_engine *engine)
{
	static const struct kvp_identity identity[] = {{"content", "kvpoolctl replay 1"}};
	const struct rep_options *options = engine->run->options;
	uint32_t lease_high = engine->run->lease_high;
	struct kvp_attach_params params = {
		.size = sizeof(params),
		.pool = options->pool,
		.timeout_ms = options->global.timeout_ms,
		.max_seqs = options->batch + 1,
		.max_seq_tokens = engine->run->longest_tokens,
		.batch_tokens = options->batch,
		.identity_count = 1,
		.identity = identity,
	};

	if (lease_high) {
		params.flags = KVP_ATTACH_LEASE_MARKS;
		params.lease_high = lease_high;
		params.lease_low = (lease_high + 1) / 2;
		params.lease_critical = lease_high / 4;
	}
	return kvp_attach(engine->client, &params);
}

static int connect_and_attach(struct rep_engine *engine)
{
	const struct ctl_global *global = &engine->run->options->global;
	struct kvp_connect_params params = {.size = sizeof(params),
					    .timeout_ms = global->timeout_ms,
					    .path = global->socket,
					    .name = "replay"};
	int ret = kvp_connect(&params, &engine->client);

	if (ret)
		return rep_engine_fail(engine, "connect", ret);
	engine->pool.size = sizeof(engine->pool);
	ret = kvp_pool_info(engine->client, engine->run->options->pool, global->timeout_ms, &engine->pool);
	if (ret)
		return rep_engine_fail(engine, "pool", ret);
	ret = attach(engine);
	if (ret)
		return rep_engine_fail(engine, "attach", ret);
	atomic_store(&engine->stats->session, kvp_session_id(engine->client));
	engine->lease.size = sizeof(engine->lease);
	ret = kvp_lease_info(engine->client, &engine->lease);
	return ret ? rep_engine_fail(engine, "lease", ret) : 0;
}

static int make_arrays(struct rep_engine *engine)
{
	uint32_t batch = engine->run->options->batch;

	engine->open = calloc(batch, sizeof(*engine->open));
	engine->again = calloc(batch, sizeof(*engine->again));
	engine->running = calloc(batch, sizeof(*engine->running));
	engine->seqs = calloc(batch, sizeof(*engine->seqs));
	engine->step_tokens = calloc(batch, sizeof(*engine->step_tokens));
	engine->scratch = calloc(1, engine->planes.longest_row);
	if (!engine->open || !engine->again || !engine->running || !engine->seqs || !engine->step_tokens ||
	    !engine->scratch)
		return rep_engine_fail_alone(engine, "memory", -ENOMEM);
	return 0;
}

static int make_batch(struct rep_engine *engine)
{
	struct kvp_batch_params params = {.size = sizeof(params), .max_seqs = engine->run->options->batch};
	int ret;

	if (engine->pool.on_device)
		params.staging = KVP_STAGING_ROWS;
	ret = kvp_batch_create(engine->client, &params, &engine->batch);
	/* A build without kernels for a GPU. */
	if (ret == -ENOSYS) {
		params.staging = KVP_STAGING_WHOLE;
		ret = kvp_batch_create(engine->client, &params, &engine->batch);
	}
	return ret ? rep_engine_fail(engine, "batch", ret) : 0;
}

static int open_engine(struct rep_engine *engine)
{
	const struct rep_options *options = engine->run->options;
	int ret = connect_and_attach(engine);

	if (ret)
		return ret;
	ret = rep_planes_init(&engine->planes, engine->client, &engine->pool);
	if (ret)
		return rep_engine_fail(engine, "planes", ret);
	atomic_store(&engine->run->shared->block_bytes, engine->planes.block_bytes);
	if (engine->pool.on_device) {
		ret = rep_planes_on_device(&engine->planes);
		if (ret)
			return rep_engine_fail_alone(engine, "device", ret);
	}
	ret = rep_attention_init(&engine->attention, &engine->planes, &engine->pool, options->batch,
				 options->heads);
	if (ret)
		return rep_engine_fail_alone(engine, "attention", ret);
	ret = make_arrays(engine);
	if (!ret)
		ret = make_batch(engine);
	return ret;
}

static void close_engine(struct rep_engine *engine)
{
	kvp_batch_destroy(engine->batch);
	/* Its stream first: closing waits for the context's work. */
	rep_device_close(engine->planes.device);
	engine->planes.device = NULL;
	kvp_close(engine->client);
	rep_admit_free(engine);
	rep_attention_free(&engine->attention);
	rep_planes_free(&engine->planes);
	free(engine->running);
	free(engine->seqs);
	free(engine->step_tokens);
	free(engine->scratch);
}

static int check_progress(struct rep_engine *engine)
{
	uint64_t stuck_ms = (uint64_t)STUCK_TIMEOUTS * engine->run->options->global.timeout_ms;
	char what[128];

	if (kvw_now_ns() - engine->progress_ns < stuck_ms * 1000000)
		return 0;
	snprintf(what, sizeof(what), "%.0f s without progress: the pool is too small for what runs at once",
		 (double)stuck_ms / 1000);
	return rep_engine_fail_alone(engine, what, -KVP_ENOBLOCKS);
}

static int schedule(struct rep_engine *engine)
{
	int ret = 0;

	engine->progress_ns = kvw_now_ns();
	while (!ret && rep_admit_any(engine) && !atomic_load(&engine->run->shared->stop)) {
		ret = rep_admit_post(engine);
		if (!ret)
			ret = rep_admit_collect(engine);
		if (!ret)
			ret = rep_decode(engine);
		if (!ret)
			ret = check_progress(engine);
	}
	return ret;
}

int rep_engine_main(const struct rep_run *run, uint32_t index, int event_fd)
{
	struct rep_engine engine = {.run = run,
				    .stats = &run->shared->stats[index],
				    .index = index,
				    .event_fd = event_fd,
				    .next_request = index};
	int ret;

	/* The replay must not outlive whoever reads its results. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ret = rep_syscalls_init(run->counting, engine.stats);
	if (ret)
		atomic_store(&engine.stats->counting, REP_COUNT_NONE);
	ret = open_engine(&engine);
	if (!ret)
		ret = schedule(&engine);
	if (!ret && !atomic_load(&run->shared->stop)) {
		ret = kvp_sync(engine.client, run->options->global.timeout_ms);
		if (ret)
			rep_engine_fail(&engine, "sync", ret);
	}
	close_engine(&engine);
	return ret ? CTL_FAULT : CTL_OK;
}
