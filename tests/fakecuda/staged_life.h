/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine on a fake daemon whose batch is staged to the double: it begins and stages steps, and reads the device's arrays back,
 * behind everything that is queued.
 */
#ifndef KVPOOL_TESTS_FAKECUDA_STAGED_LIFE_H
#define KVPOOL_TESTS_FAKECUDA_STAGED_LIFE_H

#include "fixture.h"

#include "tests/client/batch_model.h"
#include "tests/client/fixture.h"

#define LIFE_BLOCK_TOKENS 4u
#define LIFE_SEQS 12u
#define LIFE_SEQ_TOKENS 96u
#define LIFE_STEP_TOKENS 40u
#define LIFE_SLOTS 3u
#define LIFE_ALL_TOKENS (LIFE_STEP_TOKENS + LIFE_SEQS)
#define LIFE_WIDTH (LIFE_SEQ_TOKENS / LIFE_BLOCK_TOKENS)

struct life {
	struct fixture *fixture;
	struct kvp_batch *batch;
	struct kvp_batch_params params;
	struct model_params model;
	struct kvp_seq *seqs[LIFE_SEQS];
	uint32_t open;
	uint32_t token;                   /* the next prompt's first token */
	uint64_t step;                    /* last begun */
	struct model_row rows[LIFE_SEQS]; /* of it */
	struct kvp_batch_view view;       /* as staged: device addresses */
};

void life_begin(struct life *life, const struct kvp_batch_params *params);
/* Waits for the device; everything is closed, the daemon's books are right. */
void life_end(struct life *life);

void life_open(struct life *life, uint32_t tokens);
void life_close(struct life *life, uint32_t i);
void life_set(struct life *life);
/* Reserves and begins the next step, tokens[i] (NULL: 1) each; 0 or the error of begin. */
int life_step(struct life *life, const uint32_t *tokens);
int life_stage(struct life *life, struct kvw_cuda_stream *on);
/* The step's end on the stream, and its outcome: all tokens stand. */
void life_finish(struct life *life, struct kvw_cuda_stream *on);
/* The device's arrays of the last staged step equal the model's, and behind them is padding. */
void life_check(struct life *life);

/* Arrays as the device has them; waits for `stream`. */
struct device_arrays {
	int32_t block_table[LIFE_SEQS * LIFE_WIDTH];
	int32_t kv_lens[LIFE_SEQS], qo_lens[LIFE_SEQS], qo_offset[LIFE_SEQS];
	int32_t cu_q[LIFE_SEQS + 1], cu_kv[LIFE_SEQS + 1], page_indptr[LIFE_SEQS + 1];
	int32_t page_list[LIFE_SEQS * LIFE_WIDTH];
	int32_t n_valid[LIFE_ALL_TOKENS];
	int64_t slot_mapping[LIFE_ALL_TOKENS]; /* widened */
};
void life_read(const struct life *life, struct device_arrays *out);

#endif
