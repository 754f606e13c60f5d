/* SPDX-License-Identifier: Apache-2.0 */
#include "share_engine.h"

#include "fixture.h"
#include "ipc/shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/kvpool.h>

#define WAIT_MS 20000u
#define PATH_VARIABLE "KVT_SHARE_SOCKET"

static struct kvp_client *client;
static struct kvp_seq *seq;
static struct kvp_batch *batch;
static struct kvp_view view;
static uint64_t steps[KVW_TIMELINES]; /* launched */
static _Atomic uint64_t *gate;
static uint64_t gate_address;
static uint64_t gates; /* passed */
static struct kvw_cuda_context *other_context;
static uint64_t copies; /* of matched blocks */
static uint64_t endless;
static struct kvw_cuda_stream *captured;
static bool begun;
static bool batched;

/* ------------------------------------------------------------------ orders */

static int connect_and_attach(void *given, uint32_t weights)
{
	char text[16];
	const struct kvp_identity identity = {.key = "weights", .value = text};
	const struct kvp_connect_params connect = {
		.size = sizeof(connect), .path = getenv(PATH_VARIABLE), .timeout_ms = WAIT_MS};
	const struct kvp_attach_params attach = {.size = sizeof(attach),
						 .max_seqs = 4,
						 .max_seq_tokens = 512,
						 .cuda_context = given,
						 .identity = &identity,
						 .identity_count = weights != 0,
						 .flags = KVP_ATTACH_LEASE_MARKS};
	int ret = kvp_connect(&connect, &client);

	snprintf(text, sizeof(text), "%u", weights);
	if (!ret)
		ret = kvp_attach(client, &attach);
	view.size = sizeof(view);
	return ret ? ret : kvp_plane_view(client, 0, KVP_LAYOUT_NATIVE, &view);
}

static int attach(uint32_t device, uint32_t weights)
{
	if (!device)
		return connect_and_attach(NULL, weights);
	OK(cuDevicePrimaryCtxRetain, &other_context, (int)device);
	return connect_and_attach(other_context, weights);
}

static int leave(uint64_t *left)
{
	kvp_close(client);
	client = NULL;
	seq = NULL;
	batch = NULL;
	*left = (uint64_t)kvt_cuda_live(getpid(), NULL, 0);
	return 0;
}

static int open_seq(const struct share_order *order, uint64_t *matched)
{
	uint32_t tokens[512];
	const struct kvp_open_request request = {.size = sizeof(request),
						 .flags = order->flags,
						 .tokens = tokens,
						 .token_count = order->number,
						 .max_cached_tokens = UINT32_MAX};
	struct kvp_seq_info info = {.size = sizeof(info)};
	int result = 0;
	int ret;

	for (uint32_t i = 0; i < order->number; i++)
		tokens[i] = order->value + i;
	ret = kvp_open(client, &request, 1, WAIT_MS, &result, &seq);
	ret = ret ? ret : result;
	if (!ret)
		ret = kvp_seq_info(seq, &info);
	*matched = info.cached_tokens;
	return ret;
}

static uint64_t block_address(int32_t id)
{
	return (uint64_t)(uintptr_t)view.data + (uint64_t)id * (uint64_t)view.strides[0] * 2;
}

static size_t block_words(void)
{
	return (size_t)view.strides[0] * 2 / 4;
}

/* As an engine's prefill: stage, launch, settle; the step's end is the stream's. */
static int write_all(uint32_t value, uint32_t timeline, bool no_end)
{
	struct kvp_seq_info info = {.size = sizeof(info)};
	uint32_t rest;
	int ret = kvp_seq_info(seq, &info);

	if (ret)
		return ret;
	rest = info.prompt_tokens - info.cached_tokens;
	ret = kvp_seq_stage(seq, rest, timeline, ++steps[timeline]);
	if (ret)
		return ret;
	for (uint32_t i = info.cached_tokens / SHARE_BLOCK_TOKENS; i < info.blocks; i++)
		OK(cuMemsetD32Async, block_address(kvp_seq_blocks(seq)[i]), value, block_words(), stream);
	if (no_end)
		endless = steps[timeline];
	else
		ret = kvp_step_done_on(client, timeline, steps[timeline], stream);
	return ret ? ret : kvp_seq_settle(seq, rest, NULL, 1, timeline, steps[timeline]);
}

static int count_other(uint32_t value, uint64_t *out)
{
	struct kvp_seq_info info = {.size = sizeof(info)};
	int ret = kvp_seq_info(seq, &info);

	for (uint32_t i = 0; !ret && i < info.blocks; i++)
		*out += count_others(block_address(kvp_seq_blocks(seq)[i]), value, block_words());
	return ret;
}

static bool is_decided(void *arg)
{
	int *ret = arg;

	*ret = kvp_seq_ready(seq);
	return *ret != 0;
}

static int wait_ready(void)
{
	int ret = 0;

	kvt_wait_until(is_decided, &ret);
	return ret;
}

static int put_gate(void)
{
	if (!gate)
		gate = make_registered_page(&gate_address);
	OK(cuStreamWaitValue64, stream, gate_address, gates + 1, KVW_CUDA_WAIT_GEQ);
	return 0;
}

static int pass_gate(void)
{
	atomic_store(gate, ++gates);
	OK(cuStreamSynchronize, stream);
	return 0;
}

/* From a connection to its end, with one call of the driver failing on the way. */
static int try_attach(uint32_t n, uint64_t *left)
{
	uint64_t unused;
	int ret;

	kvt_cuda_fail(NULL, n, KVW_CUDA_OUT_OF_MEMORY);
	ret = connect_and_attach(NULL, 0);
	kvt_cuda_fail(NULL, 0, 0);
	(void)leave(&unused);
	*left = (uint64_t)kvt_cuda_live(getpid(), NULL, 0);
	return ret;
}

static int check_batch(void)
{
	struct kvp_batch_view step_view = {.size = sizeof(step_view)};
	int ret = batch ? 0 : kvp_batch_create(client, NULL, &batch);

	if (!ret)
		ret = kvp_batch_begin(batch, NULL, 1, kvp_step_next(client, 1), &step_view);
	kvp_step_done(client, 1, kvp_step_next(client, 1) - 1);
	return ret;
}

static int begin_read(void)
{
	const struct kvp_batch_params params = {.size = sizeof(params), .staging = KVP_STAGING_WHOLE};
	struct kvp_batch_view step_view = {.size = sizeof(step_view)};
	int ret = 0;

	if (!batched)
		return kvp_seq_stage(seq, 1, 0, ++steps[0]);
	if (!batch)
		ret = kvp_batch_create(client, &params, &batch);
	if (!ret)
		ret = kvp_batch_set(batch, &seq, 1);
	return ret ? ret : kvp_batch_begin(batch, NULL, 0, ++steps[0], &step_view);
}

static int stage_read(void)
{
	struct kvp_batch_view step_view = {.size = sizeof(step_view)};

	return batched ? kvp_batch_stage(batch, stream, &step_view) : kvp_seq_wait_on(seq, stream);
}

static int read_matched(bool as_batch)
{
	struct kvp_seq_info info = {.size = sizeof(info)};
	size_t bytes = block_words() * 4;
	int ret = kvp_seq_info(seq, &info);

	batched = as_batch;
	if (!ret && !begun)
		ret = begin_read();
	if (ret)
		return ret;
	begun = true;
	ret = stage_read();
	if (ret)
		return ret;
	begun = false;
	if (!copies)
		OK(cuMemAlloc, &copies, SHARE_MATCHED * bytes);
	for (uint32_t i = 0; i < SHARE_MATCHED; i++)
		OK(cuMemcpyDtoDAsync, copies + i * bytes, block_address(kvp_seq_blocks(seq)[i]), bytes,
		   stream);
	return kvp_step_done_on(client, 0, steps[0], stream);
}

static bool is_done(void *arg)
{
	(void)arg;
	return kvp_step_reached(client, 0) >= steps[0];
}

static int settle_read(void)
{
	return batched ? kvp_batch_settle(batch, NULL, NULL, 0, steps[0])
		       : kvp_seq_settle(seq, 1, NULL, 1, 0, steps[0]);
}

static int capture(bool begin)
{
	struct kvw_cuda_graph *graph = NULL;

	if (begin) {
		OK(cuStreamCreate, &captured, KVW_CUDA_STREAM_NON_BLOCKING);
		OK(cuStreamBeginCapture, captured, KVW_CUDA_CAPTURE_GLOBAL);
		return 0;
	}
	if (cuda->cuStreamEndCapture(captured, &graph))
		return -EBUSY;
	OK(cuGraphDestroy, graph);
	OK(cuStreamDestroy, captured);
	return 0;
}

static int obey_reading(const struct share_order *order, uint64_t *number)
{
	switch (order->what) {
	case SHARE_READ:
		return read_matched(order->number != 0);
	case SHARE_DONE:
		*number = is_done(NULL);
		return 0;
	case SHARE_WAIT_DONE:
		kvt_wait_until(is_done, NULL);
		return 0;
	case SHARE_SETTLE:
		return settle_read();
	case SHARE_END:
		return kvp_step_done_on(client, 0, endless, stream);
	case SHARE_CAPTURE:
		return capture(order->number != 0);
	case SHARE_COPIED:
		*number = count_others(copies, order->value, SHARE_MATCHED * block_words());
		return 0;
	default:
		return 0;
	}
}

static int obey(const struct share_order *order, uint64_t *number)
{
	switch (order->what) {
	case SHARE_ATTACH:
		return attach(order->number, order->value);
	case SHARE_OPEN:
		return open_seq(order, number);
	case SHARE_WRITE:
		return write_all(order->value, order->number, order->flags & SHARE_NO_END);
	case SHARE_COUNT_OTHER:
		return count_other(order->value, number);
	case SHARE_READY:
		return kvp_seq_ready(seq);
	case SHARE_WAIT_READY:
		return wait_ready();
	case SHARE_CLOSE:
		return kvp_seq_close(seq);
	case SHARE_GATE:
		return put_gate();
	case SHARE_PASS:
		return pass_gate();
	case SHARE_SYNC:
		return kvp_sync(client, WAIT_MS);
	case SHARE_LEAVE:
		return leave(number);
	case SHARE_TRY:
		return try_attach(order->number, number);
	case SHARE_CHECK:
		return check_batch();
	default:
		return obey_reading(order, number);
	}
}

int share_engine_main(void)
{
	struct share_order order;

	kvt_watchdog(100);
	fixture_setup(NULL);
	do {
		struct share_answer answer = {0};

		kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &order, sizeof(order), NULL);
		answer.ret = obey(&order, &answer.number);
		if (answer.ret < 0)
			snprintf(answer.text, sizeof(answer.text), "%s", kvp_last_error());
		kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, &answer, sizeof(answer), -1);
	} while (order.what != SHARE_EXIT);
	kvp_close(client);
	if (copies)
		OK(cuMemFree, copies);
	if (gate)
		drop_registered_page((void *)(uintptr_t)gate);
	if (other_context)
		OK(cuDevicePrimaryCtxRelease, 1);
	fixture_teardown(NULL);
	return 0;
}

/* ------------------------------------------------------------------ the test's side */

struct share_engine share_engine_start(const struct kvt_daemon *daemon)
{
	struct share_engine engine;
	const char *environment[2] = {NULL, NULL};
	char path[256];

	snprintf(path, sizeof(path), PATH_VARIABLE "=%s", daemon->socket);
	environment[0] = path;
	engine.pid = kvt_cuda_spawn("engine", environment, &engine.socket_fd);
	return engine;
}

struct share_answer share_ask(const struct share_engine *engine, struct share_order order)
{
	struct share_answer answer;

	kvt_cuda_send(engine->socket_fd, &order, sizeof(order), -1);
	kvt_cuda_receive(engine->socket_fd, &answer, sizeof(answer), NULL);
	return answer;
}

void share_engine_stop(struct share_engine *engine)
{
	(void)share_ask(engine, (struct share_order){.what = SHARE_EXIT});
	assert_int_equal(kvt_cuda_reap(engine->pid), 0);
	close(engine->socket_fd);
}
