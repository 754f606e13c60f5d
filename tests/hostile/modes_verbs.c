/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile by well-formed records: blocks, holds and steps that are not its own.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include <kvpool/error.h>

#include "foe.h"

#define STRETCH_MS 200u
#define BATCH 64u

/* -------------------------------------------------------------- blocks */

/* A second session of the same user, whose blocks are as near to one's own as others' can be. */
struct neighbour {
	struct kvt_foe foe;
	struct kvw_answer blocks[BATCH];
	uint32_t count;
};

static void move_in(struct kvt_foe *foe, struct neighbour *neighbour)
{
	const struct kvw_request lease = {.type = KVW_REQUEST_LEASE, .count = BATCH};
	struct kvt_foe *other = &neighbour->foe;
	struct kvw_completion done;

	other->daemon = foe->daemon;
	other->row = foe->row;
	other->answer_ms = foe->answer_ms;
	neighbour->count = 0;
	if (!kvt_foe_open(other, NULL) || !kvt_foe_do(other, &lease, &done) || done.status)
		return;
	neighbour->count = done.granted;
	memcpy(neighbour->blocks, kvt_leased(&other->raw), sizeof(neighbour->blocks));
}

/* Any block, with its generation as everybody can read it. */
static struct kvw_block_ref any_block(struct kvt_foe *foe)
{
	const struct kvw_directory_header *directory = foe->raw.memory[KVT_DIRECTORY];
	const _Atomic uint64_t *words =
		(const _Atomic uint64_t *)(const void *)((const uint8_t *)directory + directory->block_words);
	struct kvw_block_ref ref = {.id = (int32_t)kvt_foe_pick(foe, directory->blocks)};

	ref.generation = atomic_load(&words[ref.id]) >> 8;
	return ref;
}

/* The neighbour's, or any; some with another generation, some with an id that is none. */
static struct kvw_block_ref foreign_block(struct kvt_foe *foe, const struct neighbour *neighbour)
{
	static const int32_t wild[] = {-1, 0, INT32_MAX, INT32_MIN, 1 << 26};
	struct kvw_block_ref ref = any_block(foe);

	if (neighbour->count && kvt_foe_pick(foe, 2)) {
		const struct kvw_answer *block = &neighbour->blocks[kvt_foe_pick(foe, neighbour->count)];

		ref = (struct kvw_block_ref){.id = block->id, .generation = block->generation};
	}
	if (!kvt_foe_pick(foe, 4))
		ref.generation -= 1 + kvt_foe_pick(foe, 3);
	if (!kvt_foe_pick(foe, 8))
		ref.id = wild[kvt_foe_pick(foe, sizeof(wild) / sizeof(wild[0]))];
	return ref;
}

/* Gives away what it was never given: each must be refused. */
static void return_foreign(struct kvt_foe *foe, const struct neighbour *neighbour)
{
	struct kvw_block_ref *returns = kvt_foe_table(foe, foe->raw.layout.returns);
	const struct kvw_msg_DRAIN drain = {.tail = 0};
	uint32_t refused = 0;
	uint32_t good;
	uint32_t i;

	kvt_foe_completions(foe, &good);
	for (i = 0; i < BATCH; i++) {
		returns[i] = foreign_block(foe, neighbour);
		kvt_foe_post(foe, &(struct kvw_request){.type = KVW_REQUEST_RETURN, .first = i, .count = 1});
	}
	for (i = 0; i < BATCH; i++)
		kvt_foe_post(foe, &(struct kvw_request){.type = kvt_foe_pick(foe, 2) ? KVW_REQUEST_RELEASE
										     : KVW_REQUEST_TRUNCATE,
							.hold = (uint64_t)kvt_foe_pick(foe, 100000) << 16 |
								kvt_foe_pick(foe, 32)});
	if (kvt_foe_ask(foe, KVW_MSG_DRAIN, &drain))
		return;
	refused = kvt_foe_completions(foe, &good);
	if (refused != 2 * BATCH || good)
		kvt_foe_breach(foe, "of %u blocks and holds of others only %u were refused", 2 * BATCH,
			       refused);
}

static void publish_foreign(struct kvt_foe *foe, const struct neighbour *neighbour)
{
	const struct kvw_request open = {.type = KVW_REQUEST_OPEN};
	int32_t *ids = kvt_foe_table(foe, foe->raw.layout.ids);
	uint64_t *generations = kvt_foe_table(foe, foe->raw.layout.generations);
	struct kvw_block_ref ref = foreign_block(foe, neighbour);
	struct kvw_request publish = {.type = KVW_REQUEST_PUBLISH, .count = 1};
	struct kvw_completion done;

	if (!kvt_foe_do(foe, &open, &done) || done.status)
		return;
	publish.hold = done.hold;
	ids[0] = ref.id;
	generations[0] = ref.generation;
	kvt_foe_random(foe, kvt_foe_table(foe, foe->raw.layout.hashes), foe->raw.params.hash_bytes);
	if (kvt_foe_do(foe, &publish, &done) && done.status != -KVP_ESTALE)
		kvt_foe_breach(foe, "block %d of somebody else: publish answered %d", ref.id, done.status);
	kvt_foe_post(foe, &(struct kvw_request){.type = KVW_REQUEST_RELEASE, .hold = publish.hold});
}

void kvt_mode_bad_blocks(struct kvt_foe *foe)
{
	static struct neighbour neighbour;

	kvt_foe_begin(foe, STRETCH_MS);
	move_in(foe, &neighbour);
	while (kvt_foe_goes_on(foe)) {
		return_foreign(foe, &neighbour);
		publish_foreign(foe, &neighbour);
	}
	if (neighbour.foe.raw.fd >= 0)
		kvt_foe_close(&neighbour.foe);
}

/* -------------------------------------------------------------- steps */

static void spoil_timelines(struct kvt_foe *foe)
{
	struct kvw_timelines *timelines = foe->raw.memory[KVT_TIMELINES];
	const uint64_t values[] = {
		0, 1, UINT64_MAX, KVW_TIMELINE_POISON, KVW_TIMELINE_POISON | 5, kvt_rng_next(&foe->rng)};

	atomic_store(&timelines->line[kvt_foe_pick(foe, KVW_TIMELINES)].step, values[kvt_foe_pick(foe, 6)]);
}

/* Leases a block, publishes it for a step that makes no sense, and lets the timelines jump about. */
static void publish_with_garbage(struct kvt_foe *foe, uint32_t row)
{
	struct kvw_request open = {.type = KVW_REQUEST_OPEN, .row = row, .want = 4, .most = 4};
	struct kvw_request publish = {.type = KVW_REQUEST_PUBLISH, .row = row};
	const struct kvw_answer *answers = kvt_answers(&foe->raw, row);
	struct kvw_completion done;
	uint32_t i;

	if (!kvt_foe_do(foe, &open, &done) || done.status)
		return;
	kvt_accept(&foe->raw, row, 0, 4);
	kvt_set_hashes(&foe->raw, row, kvt_rng_next(&foe->rng), 4);
	publish.hold = done.hold;
	for (i = 0; i < 4; i++) {
		publish.first = i;
		publish.count = 1;
		publish.timeline = kvt_foe_pick(foe, KVW_TIMELINES);
		publish.step = kvt_rng_next(&foe->rng) >> kvt_foe_pick(foe, 64);
		spoil_timelines(foe);
		if (!kvt_foe_do(foe, &publish, &done))
			return;
		if ((publish.step & KVW_TIMELINE_POISON) && !done.status)
			kvt_foe_breach(foe, "block %d was published for a poisoned step", answers[i].id);
		if (done.status)
			break;
	}
	kvt_foe_post(foe, &(struct kvw_request){.type = KVW_REQUEST_RELEASE,
						.hold = publish.hold,
						.timeline = kvt_foe_pick(foe, KVW_TIMELINES),
						.step = kvt_rng_next(&foe->rng) >> 1});
}

void kvt_mode_timeline_garbage(struct kvt_foe *foe)
{
	uint32_t row = 0;

	kvt_foe_begin(foe, STRETCH_MS);
	while (kvt_foe_goes_on(foe)) {
		publish_with_garbage(foe, row++ % foe->raw.params.rows);
		spoil_timelines(foe);
		kvt_foe_read(foe, 0);
	}
}

/* -------------------------------------------------------------- quota */

void kvt_mode_quota_hog(struct kvt_foe *foe)
{
	struct kvw_request lease = {.type = KVW_REQUEST_LEASE};
	struct kvw_completion done;
	uint64_t granted = 0;

	kvt_foe_begin(foe, 2 * STRETCH_MS);
	while (kvt_foe_goes_on(foe)) {
		lease.count = kvt_foe_pick(foe, 4) ? 1 + kvt_foe_pick(foe, 64) : KVW_LEASE_ENTRIES;
		if (!kvt_foe_do(foe, &lease, &done))
			return;
		granted += done.granted;
		if (granted > KVT_FOE_QUOTA)
			kvt_foe_breach(foe, "%llu blocks granted with a quota of %d",
				       (unsigned long long)granted, KVT_FOE_QUOTA);
	}
}
