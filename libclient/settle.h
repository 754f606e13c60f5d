/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVPOOL_LIBCLIENT_SETTLE_H
#define KVPOOL_LIBCLIENT_SETTLE_H

#include <stdbool.h>
#include <stdint.h>

struct kvp_seq;

/* Whether `accepted` may be settled; tokens: whether their ids are given. -KVP_ELOST: a matched block was never completed. */
int kvc_settle_check(struct kvp_seq *seq, uint32_t accepted, bool tokens);
/* Whether every block that becomes full has a hash: an engine with hashes of its own gives them by kvp_seq_settle_hashed(). */
int kvc_settle_hashes_check(const struct kvp_seq *seq, uint32_t accepted);
/* Does it: lengths and token ids. The blocks that became full are for kvc_settle_full(). */
void kvc_settle_apply(struct kvp_seq *seq, uint32_t accepted, const uint32_t *tokens, bool last);
/* Hashes what became full (without the lock) ... */
int kvc_settle_hash(struct kvp_seq *seq);
/* ... and publishes it (under it), as far as it is hashed: a hash that failed ends the publishing, not the sequence. */
void kvc_settle_publish(struct kvp_seq *seq, uint32_t timeline, uint64_t step);

static inline bool kvc_settle_is_full(uint32_t settled, uint32_t full_end)
{
	return settled >= full_end;
}

#endif
