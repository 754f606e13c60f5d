/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block hashes: SHA-256 chained over blocks (by OpenSSL).
 *
 *   hash_i = SHA-256( "kvpool block 1\0" || parent hash (32 bytes; zeros for the first block)
 *                     || u32 count of tokens || tokens, u32 each
 *                     || for each extra key: u32 domain || u32 length || bytes )
 *
 * All numbers little endian. Extra keys are tagged with their domain and length, so that a salt never equals
 * an adapter of the same text. Engines with hashes of their own (up to 64 bytes, chained by them) hand those
 * in instead.
 */
#ifndef KVPOOL_IPC_HASH_H
#define KVPOOL_IPC_HASH_H

#include <stddef.h>
#include <stdint.h>

#define KVW_SHA256_BYTES 32u

/* Domains of extra keys. X(NAME, number). */
#define KVW_EXTRA_MAP(X)                                                                                     \
	X(SALT, 1)                                                                                           \
	X(ADAPTER, 2)                                                                                        \
	X(MULTIMODAL, 3)
enum kvw_extra {
#define X(name, number) KVW_EXTRA_##name = number,
	KVW_EXTRA_MAP(X)
#undef X
};

struct kvw_extra_key {
	uint32_t domain;
	uint32_t length;
	const uint8_t *bytes;
};

struct kvw_hasher; /* reusable state of one thread: no allocation a block */
int kvw_hasher_create(struct kvw_hasher **out);
void kvw_hasher_destroy(struct kvw_hasher *hasher);

/* Hash of one block. parent: NULL for the first. 0, or -EIO when OpenSSL fails. */
int kvw_hash_block(struct kvw_hasher *hasher, const uint8_t *parent, const uint32_t *tokens, uint32_t count,
		   const struct kvw_extra_key *extras, uint32_t extra_count, uint8_t out[KVW_SHA256_BYTES]);

/* Hash of the fixed block (tokens 0..15, no parent, one salt "kvpool") that hello compares. */
int kvw_hash_probe(struct kvw_hasher *hasher, uint8_t out[KVW_SHA256_BYTES]);

/*
 * Digest of a sorted identity: SHA-256( "kvpool identity 1\0" || u32 count || for each pair: u32 length ||
 * key || u32 length || value ). Sorting is the caller's.
 */
struct kvw_pair {
	const char *key;
	const char *value;
};
int kvw_hash_identity(struct kvw_hasher *hasher, const struct kvw_pair *pairs, uint32_t count,
		      uint8_t out[KVW_SHA256_BYTES]);

#endif
