/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block hashes against hashlib's (make_hash_golden.py), what must differ, and that no block costs an
 * allocation.
 */
#include "support.h"

#include "ipc/hash.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

enum golden {
#define HASH(name, bytes) GOLDEN_##name,
#include "hash_golden.h"
#undef HASH
};
static const char *const golden_bytes[] = {
#define HASH(name, bytes) bytes,
#include "hash_golden.h"
#undef HASH
};

static uint32_t counted[256];
static struct kvw_hasher *hasher;

static int create(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < 256; i++)
		counted[i] = i;
	return kvw_hasher_create(&hasher);
}

static int destroy(void **state)
{
	(void)state;
	kvw_hasher_destroy(hasher);
	return 0;
}

static struct kvw_extra_key extra(uint32_t domain, const char *text)
{
	return (struct kvw_extra_key){
		.domain = domain,
		.length = (uint32_t)strlen(text),
		.bytes = (const uint8_t *)text,
	};
}

static void assert_golden(const uint8_t *hash, enum golden which)
{
	assert_memory_equal(hash, golden_bytes[which], KVW_SHA256_BYTES);
}

static void blocks_hash_to_their_golden_values(void **state)
{
	static const uint32_t large[3] = {0xffffffff, 0, 0x80000000};
	uint8_t first[KVW_SHA256_BYTES], hash[KVW_SHA256_BYTES];

	(void)state;
	assert_int_equal(kvw_hash_probe(hasher, hash), 0);
	assert_golden(hash, GOLDEN_PROBE);
	assert_int_equal(kvw_hash_block(hasher, NULL, counted, 64, NULL, 0, first), 0);
	assert_golden(first, GOLDEN_FIRST);
	assert_int_equal(kvw_hash_block(hasher, first, counted + 64, 64, NULL, 0, hash), 0);
	assert_golden(hash, GOLDEN_SECOND);
	assert_int_equal(kvw_hash_block(hasher, NULL, NULL, 0, NULL, 0, hash), 0);
	assert_golden(hash, GOLDEN_NO_TOKENS);
	assert_int_equal(kvw_hash_block(hasher, NULL, large, 3, NULL, 0, hash), 0);
	assert_golden(hash, GOLDEN_LARGE_TOKENS);
}

static void extra_keys_hash_to_their_golden_values(void **state)
{
	struct kvw_extra_key extras[3] = {extra(KVW_EXTRA_SALT, "one"), extra(KVW_EXTRA_ADAPTER, ""), {0}};
	uint8_t digest[40], hash[KVW_SHA256_BYTES];
	uint8_t i;

	(void)state;
	for (i = 0; i < sizeof(digest); i++)
		digest[i] = i;
	extras[2] = (struct kvw_extra_key){KVW_EXTRA_MULTIMODAL, sizeof(digest), digest};
	assert_int_equal(kvw_hash_block(hasher, NULL, counted, 64, extras, 1, hash), 0);
	assert_golden(hash, GOLDEN_SALT);
	assert_int_equal(kvw_hash_block(hasher, (const uint8_t *)golden_bytes[GOLDEN_FIRST], counted, 64,
					extras, 3, hash),
			 0);
	assert_golden(hash, GOLDEN_EXTRAS);
	extras[0].domain = KVW_EXTRA_ADAPTER;
	assert_int_equal(kvw_hash_block(hasher, NULL, counted, 64, extras, 1, hash), 0);
	assert_golden(hash, GOLDEN_ADAPTER);
}

static void identities_hash_to_their_golden_values(void **state)
{
	static const struct kvw_pair pairs[2] = {{"kv_dtype", "bf16"}, {"weights", "0123abcd"}};
	uint8_t hash[KVW_SHA256_BYTES];

	(void)state;
	assert_int_equal(kvw_hash_identity(hasher, pairs, 2, hash), 0);
	assert_golden(hash, GOLDEN_IDENTITY);
	assert_int_equal(kvw_hash_identity(hasher, NULL, 0, hash), 0);
	assert_golden(hash, GOLDEN_IDENTITY_EMPTY);
}

/* Each pair would be equal if lengths or domains were not hashed. */
static void what_could_be_confused_is_not(void **state)
{
	static const struct kvw_pair left[1] = {{"ab", "c"}}, right[1] = {{"a", "bc"}};
	struct kvw_extra_key salts[2] = {extra(KVW_EXTRA_SALT, "a"), extra(KVW_EXTRA_SALT, "b")};
	struct kvw_extra_key joined = extra(KVW_EXTRA_SALT, "ab");
	uint8_t a[KVW_SHA256_BYTES], b[KVW_SHA256_BYTES];
	static const uint8_t zeros[KVW_SHA256_BYTES];

	(void)state;
	kvw_hash_identity(hasher, left, 1, a);
	kvw_hash_identity(hasher, right, 1, b);
	assert_memory_not_equal(a, b, sizeof(a));
	kvw_hash_block(hasher, NULL, counted, 8, salts, 2, a);
	kvw_hash_block(hasher, NULL, counted, 8, &joined, 1, b);
	assert_memory_not_equal(a, b, sizeof(a));
	/* The last token against an extra key of the same bytes. */
	kvw_hash_block(hasher, NULL, counted, 8, NULL, 0, a);
	kvw_hash_block(hasher, NULL, counted, 7, NULL, 0, b);
	assert_memory_not_equal(a, b, sizeof(a));
	/* Zeros are the first block's parent, as the format says. */
	kvw_hash_block(hasher, zeros, counted, 8, NULL, 0, b);
	assert_memory_equal(a, b, sizeof(a));
}

/* ------------------------------------------------------------------ allocations */

static size_t allocations;

static void *counted_malloc(size_t bytes, const char *file, int line)
{
	(void)file;
	(void)line;
	allocations++;
	return malloc(bytes);
}

static void *counted_realloc(void *old, size_t bytes, const char *file, int line)
{
	(void)file;
	(void)line;
	allocations++;
	return realloc(old, bytes);
}

static void counted_free(void *old, const char *file, int line)
{
	(void)file;
	(void)line;
	free(old);
}

static void a_block_costs_no_allocation(void **state)
{
	struct kvw_extra_key salt = extra(KVW_EXTRA_SALT, "one");
	uint8_t hash[KVW_SHA256_BYTES] = {0};
	size_t before;
	uint32_t i;

	(void)state;
	before = allocations;
	EVP_MD_CTX_free(EVP_MD_CTX_new());
	assert_true(allocations > before); /* the counter counts */
	before = allocations;
	for (i = 0; i < 1000; i++)
		assert_int_equal(kvw_hash_block(hasher, hash, counted, 64, &salt, 1, hash), 0);
	assert_int_equal(allocations, before);
}

static void destroying_nothing_is_allowed(void **state)
{
	(void)state;
	kvw_hasher_destroy(NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_hash_to_their_golden_values),
		cmocka_unit_test(extra_keys_hash_to_their_golden_values),
		cmocka_unit_test(identities_hash_to_their_golden_values),
		cmocka_unit_test(what_could_be_confused_is_not),
		cmocka_unit_test(a_block_costs_no_allocation),
		cmocka_unit_test(destroying_nothing_is_allowed),
	};

	kvt_watchdog(60);
	/* Before OpenSSL's first allocation, or it refuses. */
	if (CRYPTO_set_mem_functions(counted_malloc, counted_realloc, counted_free) != 1)
		return 1;
	return cmocka_run_group_tests_name("unit.hash", tests, create, destroy);
}
