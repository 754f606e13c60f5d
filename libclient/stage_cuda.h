/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arrays of a batch on the device. There is one set of them, at addresses that stay, whatever slot of the host a
 * step's came from: work that reads them and work that writes them follow each other in the stream.
 *
 *   arrays     as a slot's (batch_layout.h)
 *   staged     i32 [B] the lengths as they were staged, for corrections
 *   rows       i32 [rows][width] block-table rows, by the row's own number; block_table is gathered from them
 *
 * Of the slot's word `release` only ever more is stored, each time behind what reads the slot.
 */
#ifndef KVPOOL_LIBCLIENT_STAGE_CUDA_H
#define KVPOOL_LIBCLIENT_STAGE_CUDA_H

#include <stdint.h>

#include <kvpool/kvpool.h>

#include "batch_layout.h"
#include "client.h"
#include "coming.h"

struct kvp_batch;
struct kvw_cuda_stream;

/* What the device has of a row. */
struct kvc_device_row {
	uint64_t stamp; /* 0: nothing that is known */
	uint32_t blocks;
};

struct kvc_staging {
	uint64_t memory; /* of the device, for the client's life; 0: none yet */
	uint64_t bytes;
	struct kvc_device_row *device_rows; /* [rows] */
	/* Of the batch that uses it now. */
	struct kvc_batch_layout layout;
	uint64_t staged_at, rows_at; /* behind `memory` */
	uint32_t rows_end,
		tokens_end;          /* the most that any step had: behind it slots and device have padding */
	bool fresh;                  /* the device has nothing of this batch yet */
	const struct kvc_slot *last; /* slot of the step that the arrays hold; NULL: none */
	struct kvc_use last_use;
	struct kvp_batch_view view; /* of it */
	int32_t *cu_q; /* [max_seqs + 1] and where its requests' tokens begin, padding rows included */
	struct kvw_cuda_stream *stream;
	struct kvc_awaits awaits; /* of the step begun last */
	uint64_t sequence;        /* of stagings; never goes back */
	uint64_t released
		[KVW_MAX_SLOTS]; /* of a batch that was destroyed: what the slots' words must come to */
	_Atomic uint64_t *release[KVW_MAX_SLOTS];
};

int kvc_stage_check_params(const struct kvp_client *client, const struct kvp_batch_params *params);
/* Under the lock, all three. */
int kvc_stage_prepare(struct kvp_batch *batch);
void kvc_stage_end(struct kvp_batch *batch);
/* -KVP_ESLOTS while a stream still reads a slot of the batch that was destroyed. */
int kvc_stage_check_ended(const struct kvc_engine *engine);
/* A step was begun, which may never be staged: its slot has that much. */
static inline void kvc_stage_note(struct kvc_staging *staging, const struct kvp_batch_view *view)
{
	staging->rows_end = kvc_max(staging->rows_end, view->rows);
	staging->tokens_end = kvc_max(staging->tokens_end, view->tokens);
}
/* In the client's context, before it goes. */
void kvc_stage_free(struct kvp_client *client);

#endif
