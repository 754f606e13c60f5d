/* SPDX-License-Identifier: Apache-2.0 */
/* The planes that a replayed engine fills: where a token's row lies, and how its bytes are made. */
#ifndef KVPOOL_TOOLS_REPLAY_PLANE_H
#define KVPOOL_TOOLS_REPLAY_PLANE_H

#include <stdint.h>

#include <kvpool/kvpool.h>

#include "content.h"
#include "device.h"

struct rep_plane {
	uint8_t *data;  /* of block 0 */
	uint32_t index; /* in the pool */
	uint32_t role;
	uint32_t dtype; /* enum kvp_dtype; FP8_V32 for the packed row */
	enum rep_row_kind kind;
	uint32_t heads;
	int64_t block_stride; /* bytes */
	int64_t token_stride;
	int64_t head_stride;
	uint32_t row_bytes; /* of one token and head */
	uint64_t start;     /* of the plane's bytes in a block, when all planes are counted end to end */
};

struct rep_planes {
	struct rep_plane *at;
	uint32_t count;
	uint32_t block_tokens;
	uint32_t longest_row;
	uint64_t block_bytes;      /* of all planes */
	struct rep_device *device; /* NULL: the pool is the host's */
};

/*
 * The planes of an attached client, opaque ones left out. 0, -ENOMEM, -ENOTSUP when none is left; or the
 * library's error.
 */
int rep_planes_init(struct rep_planes *planes, const struct kvp_client *client,
		    const struct kvp_pool_info *pool);
/* The planes lie on a device: rows go through a stream. 0, or a told error. */
int rep_planes_on_device(struct rep_planes *planes);
void rep_planes_free(struct rep_planes *planes);

static inline uint8_t *rep_row_at(const struct rep_plane *plane, int32_t block, uint32_t token, uint32_t head)
{
	return plane->data + block * plane->block_stride + token * plane->token_stride +
	       head * plane->head_stride;
}

/* From a plane's first row in a block to the end of its last. */
static inline size_t rep_page_bytes(const struct rep_plane *plane, uint32_t block_tokens)
{
	return (size_t)((block_tokens - 1) * plane->token_stride + (plane->heads - 1) * plane->head_stride) +
	       plane->row_bytes;
}
/* Where a block's rows of a plane can be read: there, or in a copy of a device's that lasts until the next call. */
const uint8_t *rep_planes_page(const struct rep_planes *planes, const struct rep_plane *plane, int32_t block);
/* One byte of a block, `at` bytes behind the plane's first row; gives what it was. */
uint8_t rep_planes_flip(const struct rep_planes *planes, const struct rep_plane *plane, int32_t block,
			uint32_t at, uint8_t mask);

/* Writes the rows of one token in every plane. prefix: over all tokens, this one included. */
void rep_planes_write(const struct rep_planes *planes, int32_t block, uint32_t offset, uint64_t prefix,
		      uint32_t token);

/* The first byte of a block that is not what it must be. */
struct rep_mismatch {
	uint32_t plane;
	uint32_t token; /* in the block */
	uint64_t offset;
	uint8_t got;
	uint8_t wanted;
};
/*
 * Compares a whole block; *prefix goes in as of the token before it and comes out as of its last. scratch:
 * longest_row bytes. 0, or 1 and *out.
 */
int rep_planes_compare(const struct rep_planes *planes, int32_t block, const uint32_t *tokens,
		       uint64_t *prefix, uint8_t *scratch, struct rep_mismatch *out);

#endif
