/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile by hashes: as many as the tables hold, and such that all fall into one place of the directory.
 */
#include <string.h>

#include "foe.h"

#define STRETCH_MS 300u
#define BOMB_ROWS 2u
#define BOMB_BLOCKS 16384u
#define COLLISIONS 48u
/* Tries for a hash that falls into the wanted bucket. */
#define MOST_TRIES 4000000u

void kvt_shape_hash_bombs(struct kvw_msg_ATTACH *attach)
{
	attach->rows = BOMB_ROWS;
	attach->row_blocks = BOMB_BLOCKS;
	attach->answers = KVW_MAX_ANSWERS;
	attach->hash_bytes = KVW_MAX_HASH_BYTES;
}

/* Opens of the longest rows, all hashes the same, or found nowhere. */
void kvt_mode_hash_bombs(struct kvt_foe *foe)
{
	struct kvw_request open = {.type = KVW_REQUEST_OPEN,
				   .first = BOMB_BLOCKS,
				   .count = BOMB_BLOCKS,
				   .flags = KVW_REQUEST_COMING};
	uint32_t good;

	kvt_foe_begin(foe, STRETCH_MS);
	kvt_foe_random(foe, kvt_foe_table(foe, foe->raw.layout.hashes), KVW_MAX_HASH_BYTES);
	while (kvt_foe_goes_on(foe)) {
		open.row = kvt_foe_pick(foe, BOMB_ROWS);
		open.want = kvt_foe_pick(foe, 2) ? 0 : BOMB_BLOCKS;
		open.most = open.want;
		if (kvt_foe_post(foe, &open)) {
			kvt_foe_ring(foe);
			kvt_foe_completions(foe, &good);
			kvt_foe_read(foe, 5);
		}
	}
}

void kvt_shape_colliding_keys(struct kvw_msg_ATTACH *attach)
{
	attach->row_blocks = COLLISIONS;
	attach->answers = KVW_MAX_ANSWERS;
}

/* The next hash of this bucket, by trying. False: none was found. */
static bool find_colliding(struct kvt_foe *foe, uint32_t bucket, uint8_t *hash)
{
	const struct kvw_directory_header *directory = foe->raw.memory[KVT_DIRECTORY];
	uint32_t hash_bytes = foe->raw.params.hash_bytes;
	uint64_t epoch = atomic_load(&directory->epoch);
	uint32_t tries;
	uint64_t word;

	memset(hash, 0, hash_bytes);
	for (tries = 0; tries < MOST_TRIES; tries++) {
		word = kvt_rng_next(&foe->rng);
		memcpy(hash, &word, sizeof(word));
		if ((kvw_index_key(foe->raw.namespace_id, epoch, 0, hash, hash_bytes) &
		     (directory->bucket_count - 1)) == bucket)
			return true;
	}
	return false;
}

/* A chain whose every block lies in one bucket of eight entries. */
void kvt_mode_colliding_keys(struct kvt_foe *foe)
{
	struct kvw_request open = {.type = KVW_REQUEST_OPEN,
				   .first = COLLISIONS,
				   .count = COLLISIONS,
				   .want = COLLISIONS,
				   .most = COLLISIONS};
	struct kvw_request publish = {.type = KVW_REQUEST_PUBLISH, .count = COLLISIONS};
	uint8_t *hashes = kvt_foe_table(foe, foe->raw.layout.hashes);
	struct kvw_completion done;
	uint32_t i;

	kvt_foe_begin(foe, STRETCH_MS);
	for (i = 0; i < COLLISIONS && kvt_foe_goes_on(foe); i++)
		if (!find_colliding(foe, 0, hashes + (size_t)i * foe->raw.params.hash_bytes))
			return;
	if (i < COLLISIONS || !kvt_foe_do(foe, &open, &done) || done.status)
		return;
	kvt_accept(&foe->raw, 0, 0, done.granted);
	publish.hold = done.hold;
	if (!kvt_foe_do(foe, &publish, &done) || done.status)
		return;
	while (kvt_foe_goes_on(foe)) {
		if (!kvt_foe_do(foe, &open, &done))
			return;
		if (done.status || done.matched != COLLISIONS)
			kvt_foe_breach(foe, "%u of %u blocks of one bucket are found", done.matched,
				       COLLISIONS);
		kvt_foe_post(foe, &(struct kvw_request){.type = KVW_REQUEST_RELEASE, .hold = done.hold});
	}
}
