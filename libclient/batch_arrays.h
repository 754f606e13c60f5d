/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing a slot's arrays up to date: only what differs from the slot's last use is written.
 */
#ifndef KVPOOL_LIBCLIENT_BATCH_ARRAYS_H
#define KVPOOL_LIBCLIENT_BATCH_ARRAYS_H

#include <stdint.h>

struct kvp_batch;
struct kvc_slot;

/* Block table, page list and page_indptr: batch->changed[0 .. changed) differ, with batch->pages[] of this step. */
void kvc_arrays_rows(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t changed);
/*
 * All arrays with an entry a row: tokens[i] query tokens of each (NULL: 1 each), `count` in all; then padding rows. Returns the query
 * tokens of all rows.
 */
uint32_t kvc_arrays_lengths(const struct kvp_batch *batch, struct kvc_slot *slot, const uint32_t *tokens,
			    uint32_t count);

/*
 * Makes rows [first, end) padding, which attend nothing and have one query token each, whose slot is -1; `tokens` and `attended` are the
 * sums of the rows before. Returns the query tokens with theirs.
 */
uint32_t kvc_arrays_pad(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t first, uint32_t end,
			uint32_t tokens, uint32_t attended);

/* A slot whose arrays hold nothing yet. */
void kvc_arrays_reset(const struct kvp_batch *batch, struct kvc_slot *slot);

#endif
