/* SPDX-License-Identifier: Apache-2.0 */
#include "staged_life.h"

#include <stdlib.h>
#include <string.h>

static const struct fake_options lease = {.low = 40, .critical = 30, .high = 80, .data_blocks = 900};

void life_begin(struct life *life, const struct kvp_batch_params *params)
{
	const struct kvp_attach_params attach = {.size = sizeof(attach),
						 .max_seqs = LIFE_SEQS,
						 .slots = LIFE_SLOTS,
						 .max_seq_tokens = LIFE_SEQ_TOKENS,
						 .batch_tokens = LIFE_STEP_TOKENS,
						 .cuda_context = context};

	*life = (struct life){.params = *params, .token = 1000};
	life->fixture = fixture_open(&lease, &attach);
	life->model = (struct model_params){
		.block_tokens = LIFE_BLOCK_TOKENS,
		.width = LIFE_WIDTH,
		.valid_tokens = params->valid_tokens ? params->valid_tokens : LIFE_BLOCK_TOKENS,
		.slot_bytes = params->slot_bytes ? params->slot_bytes : 4,
		.pad_rows = params->pad_rows,
		.pad_id = params->pad_table == KVP_PAD_MINUS ? -1 : 0,
	};
	assert_ok(kvp_batch_create(life->fixture->client, params, &life->batch));
}

void life_end(struct life *life)
{
	OK(cuStreamSynchronize, stream);
	kvp_step_done(life->fixture->client, 0, life->step);
	kvp_batch_destroy(life->batch);
	while (life->open)
		life_close(life, 0);
	assert_ok(kvp_sync(life->fixture->client, WAIT_MS));
	fixture_close(life->fixture);
}

void life_open(struct life *life, uint32_t tokens)
{
	life->seqs[life->open++] = fixture_seq(life->fixture, life->token += 1000, tokens, 0, 0);
}

void life_close(struct life *life, uint32_t i)
{
	assert_ok(kvp_seq_close(life->seqs[i]));
	life->seqs[i] = life->seqs[--life->open];
}

void life_set(struct life *life)
{
	assert_ok(kvp_batch_set(life->batch, life->seqs, life->open));
}

int life_step(struct life *life, const uint32_t *tokens)
{
	struct kvp_batch_view view = {.size = sizeof(view)};
	uint32_t i;
	int ret;

	assert_ok(kvp_lease_wait(life->fixture->client, 24, WAIT_MS));
	assert_ok(kvp_batch_reserve(life->batch, tokens));
	for (i = 0; i < life->open; i++)
		life->rows[i] = (struct model_row){.before = fixture_info(life->seqs[i]).staged,
						   .tokens = tokens ? tokens[i] : 1};
	ret = kvp_batch_begin(life->batch, tokens, 0, life->step + 1, &view);
	if (ret)
		return ret;
	life->step++;
	for (i = 0; i < life->open; i++) {
		life->rows[i].ids = kvp_seq_blocks(life->seqs[i]);
		life->rows[i].blocks = fixture_info(life->seqs[i]).blocks;
	}
	return 0;
}

int life_stage(struct life *life, struct kvw_cuda_stream *on)
{
	life->view.size = sizeof(life->view);
	return kvp_batch_stage(life->batch, on, &life->view);
}

void life_finish(struct life *life, struct kvw_cuda_stream *on)
{
	uint32_t accepted[LIFE_SEQS];
	uint32_t tokens[LIFE_ALL_TOKENS];
	uint32_t i;

	assert_ok(kvp_step_done_on(life->fixture->client, 0, life->step, on));
	for (i = 0; i < LIFE_ALL_TOKENS; i++)
		tokens[i] = life->token + 7 * i + (uint32_t)life->step;
	for (i = 0; i < life->open; i++)
		accepted[i] = life->rows[i].tokens;
	assert_ok(kvp_batch_settle(life->batch, accepted, tokens, 0, life->step));
}

static void read_array(const void *from, void *to, size_t bytes)
{
	OK(cuMemcpyDtoHAsync, to, (uint64_t)(uintptr_t)from, bytes, stream);
}

void life_read(const struct life *life, struct device_arrays *out)
{
	const struct kvp_batch_view *view = &life->view;
	int32_t narrow[LIFE_ALL_TOKENS];
	uint32_t i;

	read_array(view->block_table, out->block_table, sizeof(out->block_table));
	read_array(view->kv_lens, out->kv_lens, sizeof(out->kv_lens));
	read_array(view->qo_lens, out->qo_lens, sizeof(out->qo_lens));
	read_array(view->qo_offset, out->qo_offset, sizeof(out->qo_offset));
	read_array(view->cu_q, out->cu_q, sizeof(out->cu_q));
	read_array(view->cu_kv, out->cu_kv, sizeof(out->cu_kv));
	read_array(view->page_indptr, out->page_indptr, sizeof(out->page_indptr));
	read_array(view->page_list, out->page_list, sizeof(out->page_list));
	read_array(view->n_valid, out->n_valid, sizeof(out->n_valid));
	if (view->slot_bytes == 8)
		read_array(view->slot_mapping, out->slot_mapping, sizeof(out->slot_mapping));
	else
		read_array(view->slot_mapping, narrow, sizeof(narrow));
	OK(cuStreamSynchronize, stream);
	for (i = 0; i < LIFE_ALL_TOKENS && view->slot_bytes == 4; i++)
		out->slot_mapping[i] = narrow[i];
}

static void check_padding(const struct life *life, const struct device_arrays *arrays)
{
	uint32_t i, j;

	for (i = life->view.rows; i < LIFE_SEQS; i++) {
		assert_int_equal(arrays->kv_lens[i], 0);
		for (j = 0; j < LIFE_WIDTH; j++)
			assert_int_equal(arrays->block_table[i * LIFE_WIDTH + j], life->model.pad_id);
	}
	for (i = life->view.tokens; i < LIFE_ALL_TOKENS; i++) {
		assert_int_equal(arrays->slot_mapping[i], -1);
		assert_int_equal(arrays->n_valid[i], 0);
	}
}

void life_check(struct life *life)
{
	struct device_arrays *arrays = calloc(1, sizeof(*arrays));
	struct model_params model = life->model;
	struct kvp_batch_view host = life->view;

	assert_non_null(arrays);
	life_read(life, arrays);
	host.block_table = arrays->block_table;
	host.kv_lens = arrays->kv_lens;
	host.qo_lens = arrays->qo_lens;
	host.qo_offset = arrays->qo_offset;
	host.cu_q = arrays->cu_q;
	host.cu_kv = arrays->cu_kv;
	host.page_indptr = arrays->page_indptr;
	host.page_list = arrays->page_list;
	host.n_valid = arrays->n_valid;
	host.slot_mapping = arrays->slot_mapping;
	host.slot_bytes = model.slot_bytes = 8; /* as life_read() gives them */
	model_check(&model, life->rows, life->open, &host);
	check_padding(life, arrays);
	free(arrays);
}
