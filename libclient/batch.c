/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch's life and membership.
 */
#include "batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attach_cuda.h"
#include "batch_arrays.h"
#include "batch_layout.h"
#include "client.h"
#include "error.h"
#include "mirror.h"
#include "params.h"
#include "publish.h"
#include "rows.h"
#include "stage_cuda.h"

static int check_limit(const char *name, uint32_t value, uint32_t max)
{
	if (value > max)
		return kvc_fail(KVP_ELIMIT, "kvp_batch_params.%s is %u, attach allows %u", name, value, max);
	return 0;
}

static void set_default(uint32_t *field, uint32_t value)
{
	if (!*field)
		*field = value;
}

static int check_slot_bytes(uint32_t bytes, uint64_t slots)
{
	if (bytes != 4 && bytes != 8)
		return kvc_fail(EINVAL, "kvp_batch_params.slot_bytes is %u: 4 or 8", bytes);
	if (bytes == 4 && slots > INT32_MAX)
		return kvc_fail(KVP_ELIMIT,
				"slots up to %llu do not fit 4 bytes: set kvp_batch_params.slot_bytes to 8",
				(unsigned long long)slots);
	return 0;
}

static int check_params(const struct kvp_client *client, struct kvp_batch_params *params)
{
	const struct kvc_engine *engine = client->engine;
	int ret;

	set_default(&params->max_seqs, engine->max_seqs);
	set_default(&params->max_tokens, engine->batch_tokens);
	set_default(&params->width, engine->tables_params.row_blocks);
	set_default(&params->valid_tokens, engine->block_tokens);
	set_default(&params->slot_bytes, sizeof(int32_t));
	ret = check_limit("max_seqs", params->max_seqs, engine->max_seqs);
	if (!ret)
		ret = check_limit("max_tokens", params->max_tokens, engine->batch_tokens);
	if (!ret)
		ret = check_limit("width", params->width, engine->tables_params.row_blocks);
	if (!ret)
		ret = check_limit("pad_rows", params->pad_rows, params->max_seqs);
	if (ret)
		return ret;
	ret = check_slot_bytes(params->slot_bytes,
			       (uint64_t)client->pool->geometry.blocks * engine->block_tokens);
	if (ret)
		return ret;
	if (params->valid_tokens > INT32_MAX)
		return kvc_fail(EINVAL, "kvp_batch_params.valid_tokens is %u, above %d", params->valid_tokens,
				INT32_MAX);
	if (params->pad_table > KVP_PAD_SINK)
		return kvc_fail(EINVAL, "kvp_batch_params.pad_table is %u: KVP_PAD_*", params->pad_table);
	return kvc_stage_check_params(client, params);
}

/* Hands out arrays of one allocation; the first round, without memory, only counts. */
struct carver {
	uint8_t *memory;
	size_t used;
};

static void *carve(struct carver *carver, size_t count, size_t element_bytes)
{
	size_t at = carver->used;

	carver->used += (count * element_bytes + 63) & ~(size_t)63;
	return carver->memory ? carver->memory + at : NULL;
}

static void carve_all(struct carver *carver, struct kvp_batch *batch)
{
	uint32_t n = batch->max_seqs;
	uint32_t i;

	batch->seqs = carve(carver, n, sizeof(struct kvp_seq *));
	batch->kv = carve(carver, n, sizeof(*batch->kv));
	batch->pages = carve(carver, n, sizeof(*batch->pages));
	batch->changed = carve(carver, n, sizeof(*batch->changed));
	batch->lacking = carve(carver, n, sizeof(struct kvp_seq *));
	batch->needs = carve(carver, n, sizeof(*batch->needs));
	batch->filled = carve(carver, n, sizeof(*batch->filled));
	for (i = 0; i < batch->slots; i++) {
		batch->slot[i].had = carve(carver, n, sizeof(*batch->slot[i].had));
		batch->slot[i].row_of = carve(carver, n, sizeof(*batch->slot[i].row_of));
		batch->slot[i].page_start = carve(carver, (size_t)n + 1, sizeof(uint32_t));
	}
}

static int allocate(struct kvp_batch *batch)
{
	struct carver carver = {0};

	carve_all(&carver, batch);
	batch->memory = aligned_alloc(64, carver.used);
	if (!batch->memory)
		return kvc_fail_plain(ENOMEM, "a batch's arrays");
	memset(batch->memory, 0, carver.used);
	carver = (struct carver){.memory = batch->memory};
	carve_all(&carver, batch);
	return 0;
}

static void place_slots(struct kvp_batch *batch)
{
	const struct kvp_client *client = batch->client;
	const struct kvc_engine *engine = client->engine;
	struct kvc_batch_layout layout;
	uint32_t i;

	kvc_batch_layout(batch->max_seqs, batch->max_tokens, batch->width, batch->slot_bytes, &layout);
	for (i = 0; i < batch->slots; i++) {
		uint8_t *base =
			kvc_tables_at(client, engine->tables.slots, i, engine->tables_params.slot_bytes);
		struct kvc_slot *slot = &batch->slot[i];

		slot->block_table = (int32_t *)(void *)(base + layout.block_table);
		slot->page_list = (int32_t *)(void *)(base + layout.page_list);
		slot->slot_mapping = base + layout.slot_mapping;
		slot->n_valid = (int32_t *)(void *)(base + layout.n_valid);
		slot->kv_lens = (int32_t *)(void *)(base + layout.kv_lens);
		slot->qo_lens = (int32_t *)(void *)(base + layout.qo_lens);
		slot->qo_offset = (int32_t *)(void *)(base + layout.qo_offset);
		slot->cu_q = (int32_t *)(void *)(base + layout.cu_q);
		slot->cu_kv = (int32_t *)(void *)(base + layout.cu_kv);
		slot->page_indptr = (int32_t *)(void *)(base + layout.page_indptr);
		slot->row_index = (int32_t *)(void *)(base + layout.row_index);
		slot->runs = (struct kvk_stage_run *)(void *)(base + layout.runs);
		slot->release = (_Atomic uint64_t *)(void *)(base + layout.release);
		kvc_arrays_reset(batch, slot);
	}
}

static int32_t pad_id(const struct kvc_engine *engine, uint32_t pad)
{
	return pad == KVP_PAD_MINUS ? -1 : pad == KVP_PAD_SINK ? engine->sink : 0;
}

static int create(struct kvp_client *client, const struct kvp_batch_params *params, struct kvp_batch **out)
{
	struct kvc_engine *engine = client->engine;
	struct kvp_batch *batch = calloc(1, sizeof(*batch));
	int ret;

	if (!batch)
		return kvc_fail_plain(ENOMEM, "a batch");
	batch->client = client;
	batch->max_seqs = params->max_seqs;
	batch->max_tokens = params->max_tokens;
	batch->width = params->width;
	batch->valid_tokens = params->valid_tokens;
	batch->valid_magic = UINT64_MAX / params->valid_tokens + 1;
	batch->slot_bytes = params->slot_bytes;
	batch->pad_rows = params->pad_rows;
	batch->pad_id = pad_id(engine, params->pad_table);
	batch->block_tokens = engine->block_tokens;
	batch->slots = engine->tables_params.slots;
	batch->staging = params->staging;
	ret = allocate(batch);
	if (ret) {
		free(batch);
		return ret;
	}
	batch->staged_mirror = kvc_mirror(client, KVC_STAGED);
	place_slots(batch);
	ret = kvc_stage_prepare(batch);
	if (ret) {
		kvc_batch_free(batch);
		return ret;
	}
	*out = batch;
	return 0;
}

/* The arrays of a batch that was destroyed lie where the new one's will. */
static int check_slots(const struct kvc_engine *engine)
{
	uint32_t i;

	for (i = 0; i < engine->tables_params.slots; i++)
		if (!kvc_use_ended(engine, &engine->slot_uses[i]))
			return kvc_fail(
				KVP_ESLOTS,
				"step %llu of the batch that was destroyed still runs on timeline %u: "
				"it must end first",
				(unsigned long long)engine->slot_uses[i].step, engine->slot_uses[i].timeline);
	return kvc_stage_check_ended(engine);
}

int kvp_batch_create(struct kvp_client *client, const struct kvp_batch_params *params, struct kvp_batch **out)
{
	struct kvp_batch_params own = {.size = sizeof(own)};
	struct kvp_batch *batch = NULL;
	int ret = kvc_enter_engine(client);

	if (!ret && params)
		ret = kvc_params_read(&own, sizeof(own), params, "kvp_batch_params");
	if (!ret)
		ret = check_params(client, &own);
	if (ret)
		return ret;
	pthread_mutex_lock(&client->lock);
	if (client->engine->batch)
		ret = kvc_fail(KVP_ESTATE, "the client has a batch already: kvp_batch_destroy() it first");
	else
		ret = check_slots(client->engine);
	if (!ret)
		ret = create(client, &own, &batch);
	if (!ret)
		client->engine->batch = batch;
	pthread_mutex_unlock(&client->lock);
	if (!ret)
		*out = batch;
	return ret;
}

void kvc_batch_free(struct kvp_batch *batch)
{
	if (!batch)
		return;
	free(batch->memory);
	free(batch);
}

/* ------------------------------------------------------------------ members */

static int not_member(uint32_t i)
{
	return kvc_fail(KVP_ESTATE, "sequence %u of the batch was closed: kvp_batch_set() without it", i);
}

int kvc_batch_check(const struct kvp_batch *batch)
{
	int ret = kvc_enter(batch->client);

	if (!ret && batch->client->cuda)
		ret = kvc_device_check(batch->client);
	return !ret && batch->left ? not_member(batch->left - 1) : ret;
}

void kvc_batch_leave(struct kvp_batch *batch, struct kvp_seq *seq)
{
	if (!seq->member)
		return;
	batch->left = seq->member;
	batch->seqs[seq->member - 1] = NULL;
	seq->member = 0;
}

static void mark_members(const struct kvp_batch *batch, bool in)
{
	uint32_t i;

	for (i = 0; i < batch->count; i++)
		if (batch->seqs[i])
			batch->seqs[i]->member = in ? i + 1 : 0;
}

static int check_member(const struct kvp_batch *batch, const struct kvp_seq *seq, uint32_t i)
{
	int ret;

	if (!seq)
		return kvc_fail(EINVAL, "sequence %u is NULL", i);
	ret = kvc_enter_seq(seq);
	if (!ret && seq->client != batch->client)
		ret = kvc_fail(EINVAL, "sequence %u belongs to another client", i);
	if (!ret && seq->member)
		ret = kvc_fail(EINVAL, "sequence %u is in the batch twice: as %u too", i, seq->member - 1);
	return ret;
}

/* Marks them all, or none. */
static int take_members(const struct kvp_batch *batch, struct kvp_seq *const *seqs, uint32_t n)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < n && !ret; i++) {
		ret = check_member(batch, seqs[i], i);
		if (!ret)
			seqs[i]->member = i + 1;
	}
	for (i = ret ? i - 1 : 0; ret && i > 0; i--)
		seqs[i - 1]->member = 0;
	return ret;
}

int kvp_batch_set(struct kvp_batch *batch, struct kvp_seq *const *seqs, uint32_t n)
{
	int ret = kvc_enter(batch->client);

	if (ret)
		return ret;
	if (n > batch->max_seqs)
		return kvc_fail(KVP_ELIMIT, "%u sequences, the batch was made for %u: raise max_seqs", n,
				batch->max_seqs);
	mark_members(batch, false);
	ret = take_members(batch, seqs, n);
	if (ret) {
		mark_members(batch, true);
		return ret;
	}
	if (n)
		memmove(batch->seqs, seqs, n * sizeof(*seqs));
	batch->count = n;
	batch->left = 0;
	/* Notes that new members have already. */
	batch->noted--;
	return 0;
}

void kvc_batch_read_inboxes(struct kvp_batch *batch)
{
	uint32_t noted = atomic_load_explicit(&batch->client->engine->noted, memory_order_acquire);
	uint8_t left = 0;
	uint32_t i;

	if (noted == batch->noted)
		return;
	for (i = 0; i < batch->count; i++) {
		_Atomic uint8_t *inbox = &batch->seqs[i]->inbox;

		if (!atomic_load_explicit(inbox, memory_order_relaxed))
			continue;
		kvc_read_inbox(batch->seqs[i]);
		left |= atomic_load_explicit(inbox, memory_order_relaxed);
	}
	batch->noted = left ? noted - 1 : noted;
}

void kvp_batch_destroy(struct kvp_batch *batch)
{
	struct kvp_client *client;
	uint32_t i;

	if (!batch)
		return;
	client = batch->client;
	/* In a forked child kvp_close() frees it. */
	if (kvc_check_forked(client))
		return;
	pthread_mutex_lock(&client->lock);
	mark_members(batch, false);
	for (i = 0; i < batch->slots; i++)
		client->engine->slot_uses[i] = batch->slot[i].use;
	kvc_stage_end(batch);
	client->engine->batch = NULL;
	pthread_mutex_unlock(&client->lock);
	kvc_batch_free(batch);
}
