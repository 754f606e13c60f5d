/* SPDX-License-Identifier: Apache-2.0 */
#include "stage_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/args.h"
#include "kernels/cuda/launch.h"

#include "batch.h"
#include "batch_arrays.h"
#include "coming_cuda.h"
#include "cuda.h"
#include "error.h"
#include "launch_cuda.h"
#include "params.h"
#include "step_cuda.h"
#include "words_cuda.h"

/* ------------------------------------------------------------------ memory */

int kvc_stage_check_params(const struct kvp_client *client, const struct kvp_batch_params *params)
{
	if (params->zero)
		return kvc_fail(KVP_ERESERVED, "kvp_batch_params.zero is reserved: set it to 0");
	if (params->staging > KVP_STAGING_WHOLE)
		return kvc_fail(EINVAL, "kvp_batch_params.staging is %u: KVP_STAGING_*", params->staging);
	if (params->staging && !client->cuda)
		return kvc_fail(KVP_ESTATE,
				"kvp_batch_params.staging is %u, but the client has no device: attach to a "
				"cuda pool, or with "
				"cuda_context",
				params->staging);
	if (params->staging == KVP_STAGING_ROWS && !client->cuda->kernels)
		return kvc_fail(ENOSYS,
				"this build has no kernels for a GPU, as it was made without nvcc: take "
				"KVP_STAGING_WHOLE, or build with the CUDA toolkit");
	return 0;
}

static uint64_t align(uint64_t bytes)
{
	return (bytes + 255) & ~UINT64_C(255);
}

static void place(struct kvc_staging *staging, const struct kvp_batch *batch)
{
	kvc_batch_layout(batch->max_seqs, batch->max_tokens, batch->width, batch->slot_bytes,
			 &staging->layout);
	staging->staged_at = align(staging->layout.bytes);
	staging->rows_at = staging->staged_at + align((uint64_t)batch->max_seqs * sizeof(int32_t));
}

/* Enough for every batch of this engine. */
static uint64_t memory_bytes(const struct kvc_engine *engine)
{
	const struct kvw_tables_params *tables = &engine->tables_params;

	return align(tables->slot_bytes) + align((uint64_t)engine->max_seqs * sizeof(int32_t)) +
	       align((uint64_t)tables->rows * tables->row_blocks * sizeof(int32_t));
}

static int allocate(struct kvp_client *client, struct kvc_staging *staging)
{
	struct kvc_engine *engine = client->engine;
	uint64_t bytes = memory_bytes(engine);
	struct kvw_cuda_error error;
	int ret;

	staging->device_rows = calloc(engine->tables_params.rows, sizeof(*staging->device_rows));
	staging->cu_q = calloc((size_t)engine->max_seqs + 1, sizeof(*staging->cu_q));
	if (!staging->device_rows || !staging->cu_q)
		return kvc_fail_plain(ENOMEM, "what the device has of each row");
	ret = KVW_CUDA(client->cuda->driver, &error, cuMemAlloc, &staging->memory, bytes);
	if (ret < 0)
		return kvc_fail(ret,
				"%llu bytes for a batch on the device: %s; lower max_seqs or max_seq_tokens",
				(unsigned long long)bytes, error.text);
	staging->bytes = bytes;
	return 0;
}

static int pin(struct kvp_client *client)
{
	const struct kvw_tables_params *tables = &client->engine->tables_params;
	struct kvc_cuda *cuda = client->cuda;

	if (cuda->slots.memory)
		return 0;
	return kvc_pin(cuda, kvc_tables_at(client, client->engine->tables.slots, 0, 0),
		       tables->slots * tables->slot_bytes, "batch slots", &cuda->slots);
}

/* Looked up now: a capture that begins later forbids it. */
static int prepare_kernels(const struct kvc_cuda *cuda)
{
	int ret;

	if (!cuda->kernels)
		return 0;
	ret = kvc_cuda_kernels_prepare(cuda->kernels, "kvk_cuda_stage", 0);
	if (!ret)
		ret = kvc_cuda_kernels_prepare(cuda->kernels, "kvk_cuda_table_gather", 0);
	return ret ? ret
		   : kvc_cuda_kernels_prepare(cuda->kernels, "kvk_cuda_correct", KVK_CUDA_CORRECT_SHARED);
}

/* In the context. The slots stay pinned. */
static void drop(const struct kvc_cuda *cuda, struct kvc_staging *staging)
{
	if (staging->memory)
		(void)KVW_CUDA(cuda->driver, NULL, cuMemFree, staging->memory);
	free(staging->cu_q);
	free(staging->device_rows);
	free(staging);
}

static int create_in_context(struct kvp_client *client)
{
	struct kvc_staging *staging = calloc(1, sizeof(*staging));
	int ret;

	if (!staging)
		return kvc_fail_plain(ENOMEM, "a batch's staging");
	ret = pin(client);
	if (!ret)
		ret = allocate(client, staging);
	if (!ret)
		ret = prepare_kernels(client->cuda);
	if (ret) {
		drop(client->cuda, staging);
		return ret;
	}
	client->engine->staging = staging;
	return 0;
}

static int create(struct kvp_client *client)
{
	bool pushed;
	int ret;

	if (client->engine->staging)
		return 0;
	ret = kvc_cuda_enter(client->cuda, &pushed);
	if (ret)
		return ret;
	ret = create_in_context(client);
	kvc_cuda_leave(client->cuda, pushed);
	return ret;
}

/* What the device has of the rows is not known: each is sent whole, over all that may stand there. */
static void forget_rows(struct kvc_staging *staging, const struct kvp_batch *batch, uint32_t blocks)
{
	uint32_t rows = batch->client->engine->tables_params.rows;
	uint32_t i;

	for (i = 0; i < rows; i++)
		staging->device_rows[i] = (struct kvc_device_row){.blocks = blocks};
}

/* What a whole copy takes along. */
static void reset_slot(const struct kvp_batch *batch, struct kvc_slot *slot)
{
	uint32_t i;

	atomic_store_explicit(slot->release, 0, memory_order_relaxed);
	memset(slot->kv_lens, 0, batch->max_seqs * sizeof(int32_t));
	for (i = 0; i < batch->max_tokens + batch->max_seqs; i++) {
		kvc_put_slot(batch, slot, i, -1);
		slot->n_valid[i] = 0;
	}
}

int kvc_stage_prepare(struct kvp_batch *batch)
{
	struct kvc_staging *staging = batch->client->engine->staging;
	uint32_t i;
	int ret;

	/* They ended, and their words' places are this batch's. */
	if (staging)
		memset(staging->released, 0, sizeof(staging->released));
	if (!batch->staging)
		return 0;
	ret = create(batch->client);
	if (ret)
		return ret;
	staging = batch->client->engine->staging;
	place(staging, batch);
	forget_rows(staging, batch, 0);
	staging->rows_end = staging->tokens_end = 0;
	staging->fresh = true;
	staging->last = NULL;
	for (i = 0; i < batch->slots; i++)
		reset_slot(batch, &batch->slot[i]);
	return 0;
}

void kvc_stage_end(struct kvp_batch *batch)
{
	struct kvc_staging *staging = batch->client->engine->staging;
	uint32_t i;

	if (!batch->staging)
		return;
	for (i = 0; i < batch->slots; i++) {
		staging->released[i] = batch->slot[i].staged;
		staging->release[i] = batch->slot[i].release;
	}
}

int kvc_stage_check_ended(const struct kvc_engine *engine)
{
	const struct kvc_staging *staging = engine->staging;
	uint32_t i;

	for (i = 0; staging && i < engine->tables_params.slots; i++)
		if (staging->released[i] &&
		    atomic_load_explicit(staging->release[i], memory_order_acquire) < staging->released[i])
			return kvc_fail(KVP_ESLOTS,
					"a stream has still to read slot %u of the batch that was destroyed: "
					"it must run first",
					i);
	return 0;
}

void kvc_stage_free(struct kvp_client *client)
{
	struct kvc_staging *staging = client->engine ? client->engine->staging : NULL;
	bool pushed = false;

	if (!staging)
		return;
	/* Where the context is gone its memory is too, and the call only fails. */
	(void)kvc_cuda_enter(client->cuda, &pushed);
	drop(client->cuda, staging);
	kvc_cuda_leave(client->cuda, pushed);
	client->engine->staging = NULL;
}

/* ------------------------------------------------------------------ the host's side of a step */

/*
 * Rows and tokens behind the step's become padding, as far as any step had more. The slot's view stays the
 * step's.
 */
static void pad_slot(const struct kvp_batch *batch, struct kvc_staging *staging, struct kvc_slot *slot)
{
	const struct kvp_batch_view *view = &slot->view;
	uint32_t rows = staging->rows_end;
	uint32_t tokens = kvc_arrays_pad(batch, slot, view->rows, rows, view->tokens,
					 (uint32_t)slot->cu_kv[view->rows]);
	uint32_t i;

	for (i = view->rows; i < rows; i++)
		slot->page_indptr[i + 1] = (int32_t)view->pages;
	for (i = 0; i < rows; i++)
		slot->row_index[i] = i < slot->rows ? (int32_t)slot->row_of[i] : -1;
	for (i = tokens; i < staging->tokens_end; i++) {
		kvc_put_slot(batch, slot, i, -1);
		slot->n_valid[i] = 0;
	}
	staging->tokens_end = kvc_max(staging->tokens_end, tokens);
}

/* Lists the entries that the device lacks of the step's rows; returns how many runs, and entries in *out_words. */
static int32_t list_runs(struct kvc_staging *staging, struct kvc_slot *slot, int64_t *out_words)
{
	int32_t runs = 0;
	uint32_t i;

	*out_words = 0;
	for (i = 0; i < slot->rows; i++) {
		struct kvc_device_row *row = &staging->device_rows[slot->row_of[i]];
		const struct kvc_position *now = &slot->had[i];
		bool grew = row->stamp == now->stamp && row->blocks <= now->blocks;
		uint32_t first = grew ? row->blocks : 0;
		uint32_t end = kvc_max(now->blocks, row->blocks);

		if (grew && row->blocks == now->blocks)
			continue;
		slot->runs[runs++] = (struct kvk_stage_run){.position = (int32_t)i,
							    .row = (int32_t)slot->row_of[i],
							    .first = (int32_t)first,
							    .end = (int32_t)end};
		*out_words += end - first;
		*row = (struct kvc_device_row){.stamp = now->stamp, .blocks = now->blocks};
	}
	return runs;
}

/* ------------------------------------------------------------------ on the stream */

struct staging_call {
	struct kvp_batch *batch;
	struct kvc_staging *staging;
	struct kvc_slot *slot;
	struct kvc_cuda *cuda;
	struct kvw_cuda_stream *stream;
	uint64_t base; /* where the device sees the slot */
};

static void *device_at(const struct staging_call *call, uint64_t offset)
{
	return (void *)(uintptr_t)(call->staging->memory + offset);
}

/* An array of the slot as the device sees it. */
static const void *slot_at(const struct staging_call *call, uint64_t offset)
{
	return (const void *)(uintptr_t)(call->base + offset);
}

static int fill(const struct staging_call *call, uint64_t offset, uint64_t bytes, int32_t value)
{
	struct kvw_cuda_error error;
	int ret = KVW_CUDA(call->cuda->driver, &error, cuMemsetD32Async, call->staging->memory + offset,
			   (uint32_t)value, bytes / sizeof(int32_t), call->stream);

	return ret < 0 ? kvc_cuda_fail(ret, &error, "padding a batch on the device") : 0;
}

/* Before a batch's first step: padding everywhere. */
static int fill_all(const struct staging_call *call)
{
	const struct kvc_staging *staging = call->staging;
	const struct kvc_batch_layout *layout = &staging->layout;
	const struct kvp_batch *batch = call->batch;
	uint64_t row_bytes = (uint64_t)batch->width * sizeof(int32_t);
	int ret = fill(call, 0, staging->rows_at, 0);

	if (!ret)
		ret = fill(call, layout->block_table, batch->max_seqs * row_bytes, batch->pad_id);
	if (!ret)
		ret = fill(call, layout->slot_mapping, layout->n_valid - layout->slot_mapping, -1);
	if (!ret && batch->staging == KVP_STAGING_ROWS)
		ret = fill(call, staging->rows_at, batch->client->engine->tables_params.rows * row_bytes,
			   batch->pad_id);
	return ret;
}

static int copy_whole(const struct staging_call *call)
{
	const struct kvc_batch_layout *layout = &call->staging->layout;
	struct kvw_cuda_error error;
	int ret = KVW_CUDA(call->cuda->driver, &error, cuMemcpyHtoDAsync, call->staging->memory,
			   call->slot->block_table, layout->row_index, call->stream);

	if (!ret)
		ret = KVW_CUDA(call->cuda->driver, &error, cuMemcpyDtoDAsync,
			       call->staging->memory + call->staging->staged_at,
			       call->staging->memory + layout->kv_lens,
			       call->batch->max_seqs * sizeof(int32_t), call->stream);
	return ret < 0 ? kvc_cuda_fail(ret, &error, "copying a step's arrays to the device") : 0;
}

static void add_array(struct kvk_stage_params *params, const struct staging_call *call, uint64_t from,
		      uint64_t to, int64_t words)
{
	params->arrays[params->array_count++] = (struct kvk_stage_array){
		.from = slot_at(call, from), .to = device_at(call, to), .words = words};
}

static void list_arrays(const struct staging_call *call, struct kvk_stage_params *params)
{
	const struct kvc_batch_layout *layout = &call->staging->layout;
	int64_t rows = call->staging->rows_end;
	int64_t tokens = call->staging->tokens_end;
	const uint64_t by_row[] = {layout->kv_lens, layout->qo_lens, layout->qo_offset, layout->row_index};
	const uint64_t sums[] = {layout->cu_q, layout->cu_kv, layout->page_indptr};
	size_t i;

	for (i = 0; i < sizeof(by_row) / sizeof(*by_row); i++)
		add_array(params, call, by_row[i], by_row[i], rows);
	for (i = 0; i < sizeof(sums) / sizeof(*sums); i++)
		add_array(params, call, sums[i], sums[i], rows + 1);
	add_array(params, call, layout->kv_lens, call->staging->staged_at, rows);
	add_array(params, call, layout->n_valid, layout->n_valid, tokens);
	add_array(params, call, layout->slot_mapping, layout->slot_mapping,
		  tokens * (call->batch->slot_bytes / (int64_t)sizeof(int32_t)));
}

static int send_changes(const struct staging_call *call, const struct kvk_cuda_device *device)
{
	const struct kvp_batch *batch = call->batch;
	struct kvk_stage_params params = {
		.size = sizeof(params),
		.positions = (int32_t)batch->max_seqs,
		.rows = (int32_t)batch->client->engine->tables_params.rows,
		.width = (int32_t)batch->width,
		.runs = slot_at(call, call->staging->layout.runs),
		.from = slot_at(call, call->staging->layout.block_table),
		.to = device_at(call, call->staging->rows_at),
		.from_stride = batch->width,
		.to_stride = batch->width,
	};

	params.run_count = list_runs(call->staging, call->slot, &params.run_words);
	list_arrays(call, &params);
	return kvk_stage_cuda(device, &params);
}

static int gather(const struct staging_call *call, const struct kvk_cuda_device *device)
{
	const struct kvc_batch_layout *layout = &call->staging->layout;
	const struct kvp_batch *batch = call->batch;
	struct kvk_table_gather_params params = {
		.size = sizeof(params),
		.count = (int32_t)call->staging->rows_end,
		.width = (int32_t)batch->width,
		.from_rows = (int32_t)batch->client->engine->tables_params.rows,
		.fill = batch->pad_id,
		.from = device_at(call, call->staging->rows_at),
		.rows = device_at(call, layout->row_index),
		.to = device_at(call, layout->block_table),
		.from_stride = batch->width,
		.to_stride = batch->width,
		.list = device_at(call, layout->page_list),
		.indptr = device_at(call, layout->page_indptr),
		.room = (int32_t)kvc_min((uint32_t)INT32_MAX, batch->max_seqs * batch->width),
	};

	return kvk_table_gather_cuda(device, &params);
}

static int send_rows(const struct staging_call *call)
{
	struct kvc_cuda_launcher launcher;
	int ret;

	kvc_cuda_launcher_init(&launcher, call->cuda->kernels, call->stream);
	ret = send_changes(call, &launcher.device);
	return ret ? ret : gather(call, &launcher.device);
}

/* The arrays may still be read by the step before, when that one is on another stream. */
static int wait_for_last(const struct staging_call *call)
{
	const struct kvc_staging *staging = call->staging;
	const struct kvc_use *use = &staging->last_use;

	if (!staging->last || staging->stream == call->stream ||
	    kvc_use_ended(call->batch->client->engine, use))
		return 0;
	if (atomic_load_explicit(&call->cuda->queued[use->timeline], memory_order_relaxed) < use->step)
		return kvc_fail(KVP_ESTATE,
				"step %llu of timeline %u was staged on another stream and has no end yet: "
				"kvp_step_done_on() first",
				(unsigned long long)use->step, use->timeline);
	if (!call->cuda->has_words)
		return kvc_fail(EOPNOTSUPP,
				"step %llu still runs on another stream, and this device's streams can't "
				"wait for a word: "
				"stage on one stream",
				(unsigned long long)use->step);
	return kvc_word_wait(call->cuda, call->stream, kvc_timeline_address(call->cuda, use->timeline),
			     use->step);
}

static int queue_copies(const struct staging_call *call)
{
	int ret = wait_for_last(call);

	if (!ret)
		ret = kvc_coming_queue(call->batch->client, &call->staging->awaits, call->stream,
				       &call->slot->use);
	if (!ret && call->staging->fresh)
		ret = fill_all(call);
	if (!ret)
		ret = call->batch->staging == KVP_STAGING_ROWS ? send_rows(call) : copy_whole(call);
	return ret;
}

static int queue_release(const struct staging_call *call)
{
	return kvc_word_store(call->cuda, call->stream, call->slot->release,
			      call->base + call->staging->layout.release, call->staging->sequence + 1);
}

static int queue_all(const struct staging_call *call)
{
	struct kvc_staging *staging = call->staging;
	int ret = kvc_cuda_check_capture(call->cuda, call->stream,
					 "stage before the capture, and before each launch of the graph");

	if (ret)
		return ret;
	pad_slot(call->batch, staging, call->slot);
	ret = queue_copies(call);
	if (!ret)
		ret = queue_release(call);
	if (ret) {
		forget_rows(staging, call->batch, call->batch->width);
		return ret;
	}
	call->slot->staged = ++staging->sequence;
	staging->fresh = false;
	staging->last = call->slot;
	staging->last_use = call->slot->use;
	staging->stream = call->stream;
	memcpy(staging->cu_q, call->slot->cu_q, (staging->rows_end + 1) * sizeof(*staging->cu_q));
	return 0;
}

/* The step's numbers with the device's addresses. */
static void set_view(const struct staging_call *call)
{
	const struct kvc_batch_layout *layout = &call->staging->layout;
	struct kvp_batch_view *view = &call->staging->view;

	*view = call->slot->view;
	view->block_table = device_at(call, layout->block_table);
	view->kv_lens = device_at(call, layout->kv_lens);
	view->qo_lens = device_at(call, layout->qo_lens);
	view->qo_offset = device_at(call, layout->qo_offset);
	view->cu_q = device_at(call, layout->cu_q);
	view->cu_kv = device_at(call, layout->cu_kv);
	view->slot_mapping = device_at(call, layout->slot_mapping);
	view->page_list = device_at(call, layout->page_list);
	view->page_indptr = device_at(call, layout->page_indptr);
	view->n_valid = device_at(call, layout->n_valid);
}

static int check_stage(const struct kvp_batch *batch, const struct kvp_batch_view *out)
{
	int ret = kvc_enter_cuda(batch->client);

	if (!ret)
		ret = kvc_params_check(out, "kvp_batch_view");
	if (!ret && !batch->staging)
		ret = kvc_fail(KVP_ESTATE, "the batch was made without kvp_batch_params.staging");
	if (!ret && !batch->begun)
		ret = kvc_fail(KVP_ESTATE,
			       "no step was begun since the last one was staged: kvp_batch_begin() first");
	return ret;
}

int kvp_batch_stage(struct kvp_batch *batch, void *stream, struct kvp_batch_view *out)
{
	struct staging_call call = {.batch = batch, .stream = stream};
	struct kvp_batch_view view;
	bool pushed;
	int ret = check_stage(batch, out);

	if (ret)
		return ret;
	call.cuda = batch->client->cuda;
	call.staging = batch->client->engine->staging;
	call.slot = batch->begun;
	/* The table is the first of a slot's arrays. */
	call.base = call.cuda->slots.address +
		    (uint64_t)((uint8_t *)call.slot->block_table - call.cuda->slots.memory);
	ret = kvc_cuda_enter(call.cuda, &pushed);
	if (ret)
		return ret;
	ret = queue_all(&call);
	kvc_cuda_leave(call.cuda, pushed);
	if (ret)
		return ret;
	batch->begun = NULL;
	set_view(&call);
	view = call.staging->view;
	return kvc_params_write(out, &view, sizeof(view), "kvp_batch_view");
}
