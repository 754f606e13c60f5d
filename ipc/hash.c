/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 by OpenSSL's plain functions, whose state is ours. OpenSSL 3.0's EVP allocates at each digest it
 * begins, with a reused context too, and a decode step that fills blocks must allocate nothing. These
 * functions are marked deprecated in favour of EVP, hence the macro.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "hash.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/sha.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are hashed as they lie in memory");

/* What is hashed is told apart by how it begins; the terminating NUL is part of it. */
static const char block_domain[] = "kvpool block 1";
static const char identity_domain[] = "kvpool identity 1";

struct kvw_hasher {
	SHA256_CTX state;
};

int kvw_hasher_create(struct kvw_hasher **out)
{
	struct kvw_hasher *hasher = calloc(1, sizeof(*hasher));

	if (!hasher)
		return -ENOMEM;
	*out = hasher;
	return 0;
}

void kvw_hasher_destroy(struct kvw_hasher *hasher)
{
	free(hasher);
}

static bool add(struct kvw_hasher *hasher, const void *bytes, size_t length)
{
	return length == 0 || SHA256_Update(&hasher->state, bytes, length) == 1;
}

static bool add_u32(struct kvw_hasher *hasher, uint32_t value)
{
	return add(hasher, &value, sizeof(value));
}

static bool begin(struct kvw_hasher *hasher, const char *domain, size_t domain_bytes)
{
	return SHA256_Init(&hasher->state) == 1 && add(hasher, domain, domain_bytes);
}

static int finish(struct kvw_hasher *hasher, uint8_t out[KVW_SHA256_BYTES])
{
	uint8_t digest[KVW_SHA256_BYTES];

	if (SHA256_Final(digest, &hasher->state) != 1)
		return -EIO;
	memcpy(out, digest, sizeof(digest));
	return 0;
}

static bool add_extras(struct kvw_hasher *hasher, const struct kvw_extra_key *extras, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (!add_u32(hasher, extras[i].domain) || !add_u32(hasher, extras[i].length) ||
		    !add(hasher, extras[i].bytes, extras[i].length))
			return false;
	return true;
}

int kvw_hash_block(struct kvw_hasher *hasher, const uint8_t *parent, const uint32_t *tokens, uint32_t count,
		   const struct kvw_extra_key *extras, uint32_t extra_count, uint8_t out[KVW_SHA256_BYTES])
{
	static const uint8_t no_parent[KVW_SHA256_BYTES];

	if (!begin(hasher, block_domain, sizeof(block_domain)) ||
	    !add(hasher, parent ? parent : no_parent, KVW_SHA256_BYTES) || !add_u32(hasher, count) ||
	    !add(hasher, tokens, (size_t)count * sizeof(*tokens)) || !add_extras(hasher, extras, extra_count))
		return -EIO;
	return finish(hasher, out);
}

int kvw_hash_probe(struct kvw_hasher *hasher, uint8_t out[KVW_SHA256_BYTES])
{
	static const uint32_t tokens[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	static const struct kvw_extra_key salt = {
		.domain = KVW_EXTRA_SALT,
		.length = 6,
		.bytes = (const uint8_t *)"kvpool",
	};

	return kvw_hash_block(hasher, NULL, tokens, 16, &salt, 1, out);
}

/* u32 length || text: so that ("ab", "c") and ("a", "bc") differ. */
static bool add_text(struct kvw_hasher *hasher, const char *text)
{
	size_t length = strlen(text);

	return length <= UINT32_MAX && add_u32(hasher, (uint32_t)length) && add(hasher, text, length);
}

int kvw_hash_identity(struct kvw_hasher *hasher, const struct kvw_pair *pairs, uint32_t count,
		      uint8_t out[KVW_SHA256_BYTES])
{
	uint32_t i;

	if (!begin(hasher, identity_domain, sizeof(identity_domain)) || !add_u32(hasher, count))
		return -EIO;
	for (i = 0; i < count; i++)
		if (!add_text(hasher, pairs[i].key) || !add_text(hasher, pairs[i].value))
			return -EIO;
	return finish(hasher, out);
}
