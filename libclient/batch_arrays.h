/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing a slot's arrays up to date: from the positions of this step and those of the slot's last use.
 */
#ifndef KVPOOL_LIBCLIENT_BATCH_ARRAYS_H
#define KVPOOL_LIBCLIENT_BATCH_ARRAYS_H

#include <stdint.h>

struct kvp_batch;
struct kvc_slot;

/* All but the slot mapping and n_valid, which the gathering pass writes. Rows beyond the sequences are padding. */
void kvc_arrays_table(const struct kvp_batch *batch, struct kvc_slot *slot);
void kvc_arrays_pages(const struct kvp_batch *batch, struct kvc_slot *slot);
/* tokens: query tokens of each sequence, NULL: 1 each. Returns the query tokens of all rows. */
uint32_t kvc_arrays_lengths(const struct kvp_batch *batch, struct kvc_slot *slot, const uint32_t *tokens);

/* A slot whose arrays hold nothing yet. */
void kvc_arrays_reset(const struct kvp_batch *batch, struct kvc_slot *slot);

#endif
