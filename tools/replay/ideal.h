/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace could hit at best: requests one after the other, and a cache that keeps every block for ever.
 * A hit is a block of the leading run of a request that an earlier request had.
 */
#ifndef KVPOOL_TOOLS_REPLAY_IDEAL_H
#define KVPOOL_TOOLS_REPLAY_IDEAL_H

#include <stdint.h>

#include "trace.h"

struct rep_ideal {
	uint64_t lookup_blocks;
	uint64_t hit_blocks;
};

/*
 * Prompts cut into full blocks of block_tokens, the last token never matched (as engines ask, and as
 * kvp_open() does). 0 or -ENOMEM.
 */
int rep_ideal_tokens(const struct rep_trace *trace, uint32_t block_tokens, struct rep_ideal *out);
/* Every trace id is a full block; of a longer request the first max_blocks count. */
int rep_ideal_ids(const struct rep_trace *trace, uint32_t max_blocks, struct rep_ideal *out);

/*
 * The block that most requests have in their leading run, with the requests that will find it: requests[i] =
 * 1 when request i has it and another had it before. *key is rep_prefix over the block's last token, *index
 * its place. Returns how many find it, or -ENOMEM.
 */
int rep_most_shared(const struct rep_trace *trace, uint32_t block_tokens, uint64_t *key, uint32_t *index,
		    uint8_t *requests);

#endif
