/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of reserve and stage that a sequence alone and a batch share.
 */
#ifndef KVPOOL_LIBCLIENT_RESERVE_H
#define KVPOOL_LIBCLIENT_RESERVE_H

#include <stdint.h>

struct kvp_seq;
struct kvc_engine;

/* Blocks that `tokens` more behind staged need. Under the lock. */
int kvc_reserve_check(struct kvp_seq *seq, uint32_t tokens, uint32_t *out_need);
/* Puts needs[i] blocks, which the lease has, behind seqs[i]. Under the lock. */
void kvc_reserve_append(struct kvp_seq *const *seqs, const uint32_t *needs, uint32_t n);
/* -KVP_ELEASE with the lease's numbers. */
int kvc_reserve_fail(const struct kvc_engine *engine, uint32_t need);

/* Whether `tokens` may go to (timeline, step) now; -KVP_ELOST too. */
int kvc_stage_check(const struct kvp_seq *seq, uint32_t tokens, uint32_t timeline, uint64_t step);
int kvc_step_check(uint32_t timeline, uint64_t step);

#endif
