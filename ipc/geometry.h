/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a block's bytes lie: planes and the two pool layouts.
 *
 *   address of (block id, plane, token t, head h, element e) =
 *       base(shard) + plane.base + id * plane.stride + (t * token_stride + h * head_stride + e) * element bytes
 *
 * block_major: a block is one record of all planes (one copy moves it); layer_major: each plane is contiguous
 * (any kernel runs on it). Every plane begins 256-byte aligned in either. All offsets are 64-bit.
 */
#ifndef KVPOOL_IPC_GEOMETRY_H
#define KVPOOL_IPC_GEOMETRY_H

#include <stdint.h>

#include "limits.h"

#define KVW_PLANE_ALIGN 256u

/* X(NAME, number, text): what a plane holds. */
#define KVW_ROLE_MAP(X)                                                                                      \
	X(LATENT, 1, "latent")                                                                               \
	X(K, 2, "k")                                                                                         \
	X(V, 3, "v")                                                                                         \
	X(INDEX_K, 4, "index_k")                                                                             \
	X(OPAQUE, 5, "opaque")
/* opaque: `dim` bytes a block that only the engine understands. */

/* X(NAME, number, text, bytes of one element). fp8_v32: the 656-byte row of 512 e4m3, 4 scales, 64 bf16; one row is one element. */
#define KVW_DTYPE_MAP(X)                                                                                     \
	X(BF16, 1, "bf16", 2)                                                                                \
	X(F16, 2, "f16", 2)                                                                                  \
	X(F32, 3, "f32", 4)                                                                                  \
	X(E4M3, 4, "e4m3", 1)                                                                                \
	X(FP8_V32, 5, "fp8_v32", 656)                                                                        \
	X(U8, 6, "u8", 1)

/* Order of heads and tokens in a plane of a block. */
#define KVW_LAYOUT_MAP(X)                                                                                    \
	X(NHD, 1, "nhd")                                                                                     \
	X(HND, 2, "hnd")

/* Order of blocks and planes in a pool. */
#define KVW_POOL_LAYOUT_MAP(X)                                                                               \
	X(BLOCK_MAJOR, 1, "block_major")                                                                     \
	X(LAYER_MAJOR, 2, "layer_major")

/* How a plane is spread over shards; version 1 grants only replicated on one shard. */
#define KVW_PLACEMENT_MAP(X)                                                                                 \
	X(REPLICATED, 1, "replicated")                                                                       \
	X(HEADS, 2, "heads")                                                                                 \
	X(TOKENS, 3, "tokens")                                                                               \
	X(SHARD, 4, "shard")

enum kvw_role {
#define X(name, number, text) KVW_ROLE_##name = number,
	KVW_ROLE_MAP(X)
#undef X
};
enum kvw_dtype {
#define X(name, number, text, bytes) KVW_DTYPE_##name = number,
	KVW_DTYPE_MAP(X)
#undef X
};
enum kvw_layout {
#define X(name, number, text) KVW_LAYOUT_##name = number,
	KVW_LAYOUT_MAP(X)
#undef X
};
enum kvw_pool_layout {
#define X(name, number, text) KVW_POOL_##name = number,
	KVW_POOL_LAYOUT_MAP(X)
#undef X
};
enum kvw_placement {
#define X(name, number, text) KVW_PLACEMENT_##name = number,
	KVW_PLACEMENT_MAP(X)
#undef X
};

struct kvw_plane {
	uint32_t layer;
	uint32_t role;      /* enum kvw_role */
	uint32_t dtype;     /* enum kvw_dtype */
	uint32_t layout;    /* enum kvw_layout */
	uint32_t heads;     /* 1 for latent and index_k */
	uint32_t dim;       /* elements of one head and token: 576, 128; 1 for fp8_v32; bytes of a block for opaque */
	uint32_t group;     /* [reserved] 0 */
	uint32_t plane_set; /* [reserved] bit 0: the main set */
	uint32_t placement; /* enum kvw_placement */
	uint32_t kernel_page_tokens; /* tokens a kernel addresses as one page: block_tokens */
	/* Computed by kvw_geometry_place(). */
	uint64_t base;         /* bytes from the shard's base to this plane of block 0 */
	uint64_t stride;       /* bytes from a block to the next */
	uint64_t page_bytes;   /* bytes that belong to this plane in one block */
	uint64_t token_stride; /* elements */
	uint64_t head_stride;  /* elements */
};

struct kvw_geometry {
	uint32_t block_tokens;
	uint32_t blocks; /* null and sink blocks included */
	uint32_t pool_layout;
	uint32_t plane_count;
	uint64_t record_bytes; /* block_major: bytes from a block to the next; layer_major: sum of the planes' strides */
	uint64_t bytes;        /* of the shard */
	struct kvw_plane planes[KVW_MAX_PLANES];
};

/* Bytes of one element; 0 for an unknown dtype. */
uint32_t kvw_dtype_bytes(uint32_t dtype);
/* Text of a number, "?" when unknown; number of a text, 0 when unknown. */
const char *kvw_role_name(uint32_t role);
const char *kvw_dtype_name(uint32_t dtype);
const char *kvw_layout_name(uint32_t layout);
const char *kvw_pool_layout_name(uint32_t layout);
uint32_t kvw_role_parse(const char *text);
uint32_t kvw_dtype_parse(const char *text);
uint32_t kvw_layout_parse(const char *text);
uint32_t kvw_pool_layout_parse(const char *text);

/*
 * Fills the computed fields of every plane, record_bytes and bytes from the declared ones; on failure nothing.
 * -EINVAL: unknown numbers, zero sizes, heads != 1 for latent, index_k and opaque, opaque that is not u8, fp8_v32
 * that is not latent with dim 1. -KVP_ERESERVED: group, plane_set > 1, placement other than replicated,
 * kernel_page_tokens != block_tokens. -KVP_ELIMIT: above a limit, or past 2^62 bytes.
 */
int kvw_geometry_place(struct kvw_geometry *geometry);

#endif
