/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks whose words name their chain, their index and their own place.
 */
#include "content.h"

uint64_t kvt_block_bytes(struct kvt_raw *raw, const char *name)
{
	const struct kvw_msg_POOL request = {.name = kvw_text_of(name)};

	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_POOL, &request), 0);
	return raw->answer.POOL_OK.record_bytes;
}

static uint64_t word(uint64_t chain, uint32_t index, uint64_t at)
{
	struct kvt_rng rng = {.state = chain << 40 ^ (uint64_t)index << 20 ^ at};

	return kvt_rng_next(&rng);
}

static uint64_t *words_of(const struct kvt_raw *raw, uint64_t block_bytes, int32_t id)
{
	return (uint64_t *)(void *)((uint8_t *)raw->memory[KVT_POOL] + (uint64_t)id * block_bytes);
}

void kvt_write_block(const struct kvt_raw *raw, uint64_t block_bytes, int32_t id, uint64_t chain,
		     uint32_t index)
{
	uint64_t *words = words_of(raw, block_bytes, id);
	uint64_t i;

	for (i = 0; i < block_bytes / sizeof(*words); i++)
		words[i] = word(chain, index, i);
}

bool kvt_holds_block(const struct kvt_raw *raw, uint64_t block_bytes, int32_t id, uint64_t chain,
		     uint32_t index)
{
	const uint64_t *words = words_of(raw, block_bytes, id);
	uint64_t i;

	for (i = 0; i < block_bytes / sizeof(*words); i++)
		if (words[i] != word(chain, index, i))
			return false;
	return true;
}
