/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode steps. Counted from reserve to settle, attention included: whoever steps pays for all of it. A step
 * is steady when no sequence opened or closed and no lease was refilled since the step before.
 */
#include <errno.h>
#include <string.h>

#include <sys/syscall.h>
#include <unistd.h>

#include "engine.h"
#include "ipc/frame.h"
#include "syscalls.h"

/* One wait for the lease; then the youngest sequence has to give way. */
#define LEASE_WAIT_MS 50u

static void gather_running(struct rep_engine *engine)
{
	engine->running_count = 0;
	for (uint32_t i = 0; i < engine->open_count; i++) {
		if (engine->open[i]->phase != REP_RUNNING)
			continue;
		engine->running[engine->running_count] = engine->open[i];
		engine->seqs[engine->running_count++] = engine->open[i]->seq;
	}
}

static int set_batch(struct rep_engine *engine)
{
	int ret;

	gather_running(engine);
	engine->batch_changed = false;
	if (!engine->running_count)
		return 0;
	ret = kvp_batch_set(engine->batch, engine->seqs, engine->running_count);
	return ret ? rep_engine_fail(engine, "batch", ret) : 0;
}

/* Blocks that the rows need for one more token each. */
static uint32_t blocks_wanted(const struct rep_engine *engine)
{
	uint32_t wanted = 0;

	for (uint32_t i = 0; i < engine->running_count; i++)
		wanted += engine->running[i]->length % engine->pool.block_tokens == 0;
	return wanted;
}

static bool is_want_of_blocks(int error)
{
	return error == -EAGAIN || error == -ETIMEDOUT || error == -KVP_ENOBLOCKS || error == -KVP_EQUOTA ||
	       error == -KVP_ELEASE;
}

/* For more than the lease can hold there is no waiting: fewer sequences have to do. */
static int wait_for_blocks(struct rep_engine *engine)
{
	uint32_t wanted = blocks_wanted(engine);

	return wanted <= engine->lease.high ? kvp_lease_wait(engine->client, wanted, LEASE_WAIT_MS)
					    : -KVP_ELEASE;
}

/*
 * The lease held too few: wait for it, and when that is in vain let the youngest give way. The step is tried
 * again.
 */
static int wait_for_lease(struct rep_engine *engine)
{
	int ret = wait_for_blocks(engine);

	rep_stat_add(&engine->stats->lease_waits, 1);
	engine->changed = true;
	if (is_want_of_blocks(ret))
		return rep_admit_preempt(engine);
	return ret ? rep_engine_fail(engine, "lease", ret) : 0;
}

/* The KV of the step's tokens, one a sequence. */
static void write_rows(struct rep_engine *engine, const struct kvp_batch_view *view)
{
	const int32_t *slots = view->slot_mapping;
	int32_t block_tokens = (int32_t)engine->pool.block_tokens;

	for (uint32_t i = 0; i < engine->running_count; i++) {
		struct rep_active *active = engine->running[i];
		uint32_t token = active->tokens[active->length];
		int32_t slot = slots[view->cu_q[i]];

		active->prefix = rep_prefix_next(active->prefix, token);
		engine->step_tokens[i] = token;
		rep_planes_write(&engine->planes, slot / block_tokens, (uint32_t)(slot % block_tokens),
				 active->prefix, token);
		active->length++;
	}
}

static bool attends(const struct rep_engine *engine)
{
	uint32_t every = engine->run->options->attention_every;

	/* The host's kernels don't reach a device's memory. */
	return engine->attention.plane && !engine->planes.device && every && engine->steps % every == 0;
}

/* Not the step's business: what queries would hold. */
static void prepare_queries(struct rep_engine *engine)
{
	for (uint32_t i = 0; i < engine->running_count; i++)
		rep_attention_query(&engine->attention, i,
				    (uint64_t)engine->running[i]->request << 32 | engine->running[i]->length);
}

static int tell_mismatch(struct rep_engine *engine, const struct rep_active *active,
			 const struct rep_attention_mismatch *mismatch)
{
	struct rep_event event = {
		.kind = REP_EVENT_ATTENTION,
		.engine = engine->index,
		.line = engine->run->trace->requests[active->request].line,
		.reader = kvp_session_id(engine->client),
		.position = active->length,
		.offset = mismatch->element,
		.got_value = mismatch->got,
		.wanted_value = mismatch->wanted,
	};

	rep_stat_add(&engine->stats->attention_failures, 1);
	return engine->failure_events++ < REP_EVENTS_TOLD ? rep_event_send(engine->event_fd, &event) : 0;
}

static int compare_row(struct rep_engine *engine, const struct kvp_batch_view *view, uint32_t row)
{
	struct rep_attention_mismatch mismatch;
	int ret = rep_attention_compare(&engine->attention, view, row, &mismatch);

	if (ret < 0)
		return rep_engine_fail_alone(engine, "reference", ret);
	rep_stat_add(&engine->stats->compared_rows, 1);
	return ret ? tell_mismatch(engine, engine->running[row], &mismatch) : 0;
}

static int compare_rows(struct rep_engine *engine, const struct kvp_batch_view *view)
{
	int ret = 0;

	for (uint32_t i = 0; i < engine->running_count && !ret; i++)
		if (engine->attended_rows++ % engine->run->options->compare_every == 0)
			ret = compare_row(engine, view, i);
	rep_stat_add(&engine->stats->attention_rows, engine->running_count);
	return ret;
}

/* Committed tokens of the batch: what a settle has sent for publishing shows in them. */
static void committed(const struct rep_engine *engine, uint32_t *out)
{
	for (uint32_t i = 0; i < engine->running_count; i++) {
		struct kvp_seq_info info = {.size = sizeof(info)};

		out[i] = kvp_seq_info(engine->running[i]->seq, &info) ? 0 : info.committed;
	}
}

/* A record goes out for every sequence that publishes. */
static uint64_t records_since(const struct rep_engine *engine, const uint32_t *before)
{
	uint32_t now[REP_MAX_BATCH];
	uint64_t records = 0;

	committed(engine, now);
	for (uint32_t i = 0; i < engine->running_count; i++)
		records += now[i] != before[i];
	return records;
}

/* Below its critical mark a lease is asked for again and again, and the daemon is rung for it. */
static bool is_refilling(const struct kvp_lease_info *lease)
{
	return lease->coming || lease->blocks < lease->critical;
}

/* On its way before or after the step, or come in between. */
static bool lease_was_refilled(struct rep_engine *engine)
{
	struct kvp_lease_info now = {.size = sizeof(now)};
	bool refilled;

	if (kvp_lease_info(engine->client, &now))
		return true;
	refilled = is_refilling(&engine->lease) || is_refilling(&now) || now.blocks > engine->lease.blocks;
	engine->lease = now;
	return refilled;
}

static void account_steady(struct rep_stats *stats, uint64_t records, uint64_t calls)
{
	rep_stat_add(&stats->steady_steps, 1);
	rep_stat_add(&stats->steady_records, records);
	rep_stat_add(&stats->steady_syscalls, calls);
	if (calls > rep_stat(&stats->worst_syscalls))
		atomic_store_explicit(&stats->worst_syscalls, calls, memory_order_relaxed);
}

static void account(struct rep_engine *engine, uint64_t records, uint64_t calls)
{
	bool refilled = lease_was_refilled(engine);

	rep_stat_add(&engine->stats->decode_steps, 1);
	rep_stat_add(&engine->stats->output_tokens, engine->running_count);
	if (!engine->changed && !refilled)
		account_steady(engine->stats, records, calls);
	engine->changed = false;
	engine->steps++;
}

static int reserve_and_begin(struct rep_engine *engine, uint64_t *step, struct kvp_batch_view *view)
{
	int ret = kvp_batch_reserve(engine->batch, NULL);

	if (ret)
		return ret;
	*step = kvp_step_next(engine->client, REP_TIMELINE);
	return kvp_batch_begin(engine->batch, NULL, REP_TIMELINE, *step, view);
}

/* What a step costs the host before its work can be launched. The clock is not the step's. */
static int prepare(struct rep_engine *engine, uint64_t *step, struct kvp_batch_view *view)
{
	uint64_t began_ns = kvw_now_ns();
	int ret;

	rep_syscalls_begin();
	if (engine->run->options->control_syscall)
		(void)syscall(SYS_getppid);
	ret = reserve_and_begin(engine, step, view);
	rep_syscalls_pause();
	if (!ret)
		rep_histogram_add(&engine->stats->preparation_ns, kvw_now_ns() - began_ns);
	rep_syscalls_resume();
	return ret;
}

static int attend(struct rep_engine *engine, const struct kvp_batch_view *view)
{
	int ret = attends(engine) ? rep_attention_run(&engine->attention, view) : 0;

	return ret ? rep_engine_fail_alone(engine, "attention", ret) : 0;
}

/* An array of the step as the device has it, behind what is queued. 0 or a told error. */
static int compare_array(struct rep_engine *engine, const char *name, const int32_t *device,
			 const int32_t *host, size_t count)
{
	const uint8_t *got = rep_device_get(engine->planes.device, device, count * sizeof(*host));

	if (!memcmp(got, host, count * sizeof(*host)))
		return 0;
	return rep_engine_fail_alone(engine, name, -EBADMSG);
}

/* Sampled as attention is on the host: what kernels would read is the step's. */
static int compare_staged(struct rep_engine *engine, const struct kvp_batch_view *device,
			  const struct kvp_batch_view *host)
{
	int ret = compare_array(engine, "staged lengths", device->kv_lens, host->kv_lens, host->rows);

	if (!ret)
		ret = compare_array(engine, "staged slots", device->slot_mapping, host->slot_mapping,
				    host->tokens);
	for (uint32_t i = 0; i < host->rows && !ret; i++)
		ret = compare_array(engine, "a staged row",
				    device->block_table + (size_t)i * host->table_width,
				    host->block_table + (size_t)i * host->table_width, host->table_width);
	return ret;
}

static int stage(struct rep_engine *engine, const struct kvp_batch_view *view)
{
	struct kvp_batch_view device = {.size = sizeof(device)};
	uint32_t every = engine->run->options->attention_every;
	int ret;

	if (!engine->planes.device)
		return 0;
	ret = kvp_batch_stage(engine->batch, rep_device_stream(engine->planes.device), &device);
	if (ret)
		return rep_engine_fail(engine, "staging", ret);
	return every && engine->steps % every == 0 ? compare_staged(engine, &device, view) : 0;
}

/* Everything that is counted but the preparation. 0 or a told error. */
static int work(struct rep_engine *engine, uint64_t step, const struct kvp_batch_view *view)
{
	int ret = stage(engine, view);

	if (ret)
		return ret;
	write_rows(engine, view);
	ret = attend(engine, view);
	if (!ret)
		ret = rep_engine_step_done(engine, step);
	if (ret)
		return ret;
	ret = kvp_batch_settle(engine->batch, NULL, engine->step_tokens, REP_TIMELINE, step);
	return ret ? rep_engine_fail(engine, "settle", ret) : 0;
}

static bool is_finished(const struct rep_active *active)
{
	return active->phase == REP_RUNNING && active->length == active->total;
}

static int close_finished(struct rep_engine *engine)
{
	int ret = 0;

	for (uint32_t i = engine->open_count; i-- && !ret;)
		if (is_finished(engine->open[i]))
			ret = rep_admit_close(engine, i, false);
	return ret;
}

/* Nothing has begun: for want of blocks, or there is an error. */
static int unprepared(struct rep_engine *engine, uint64_t step, int error)
{
	(void)rep_syscalls_end();
	/* The stream has still to read every slot: the step is tried again. */
	if (error == -KVP_ESLOTS && engine->planes.device) {
		rep_device_wait(engine->planes.device);
		return 0;
	}
	return error == -KVP_ELEASE && !step ? wait_for_lease(engine)
					     : rep_engine_fail(engine, "step", error);
}

static int step_once(struct rep_engine *engine)
{
	struct kvp_batch_view view = {.size = sizeof(view)};
	uint32_t before[REP_MAX_BATCH];
	bool attended = attends(engine);
	uint64_t step = 0;
	uint64_t calls;
	int ret;

	if (attended)
		prepare_queries(engine);
	committed(engine, before);
	ret = prepare(engine, &step, &view);
	if (ret)
		return unprepared(engine, step, ret);
	ret = work(engine, step, &view);
	calls = rep_syscalls_end();
	if (!ret && attended)
		ret = compare_rows(engine, &view);
	if (ret)
		return ret;
	account(engine, records_since(engine, before), calls);
	engine->progress_ns = kvw_now_ns();
	return close_finished(engine);
}

int rep_decode(struct rep_engine *engine)
{
	int ret = engine->batch_changed ? set_batch(engine) : 0;

	if (ret || !engine->running_count)
		return ret;
	return step_once(engine);
}
