/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the clients of these tests write into a block: a function of (chain, index) alone, so that whoever is
 * given the block can say whether it holds what its hash promises.
 */
#ifndef KVPOOL_TEST_CONTENT_H
#define KVPOOL_TEST_CONTENT_H

#include "raw.h"

/*
 * Bytes of a block of the session's pool (the only one, or `name`), asked of the daemon. Pools of these
 * tests have one plane.
 */
uint64_t kvt_block_bytes(struct kvt_raw *raw, const char *name);
void kvt_write_block(const struct kvt_raw *raw, uint64_t block_bytes, int32_t id, uint64_t chain,
		     uint32_t index);
bool kvt_holds_block(const struct kvt_raw *raw, uint64_t block_bytes, int32_t id, uint64_t chain,
		     uint32_t index);

#endif
