/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile by the rings and the doorbell.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "foe.h"

#define STRETCH_MS 100u

/* What no engine would post; most of it is refused, one in eight ends the session. */
void kvt_mode_random_records(struct kvt_foe *foe)
{
	struct kvw_request request;
	uint32_t good;
	uint32_t i;

	kvt_foe_begin(foe, STRETCH_MS);
	while (kvt_foe_goes_on(foe)) {
		for (i = 0; i < 256; i++) {
			request = kvt_foe_plausible(foe);
			if (i == 255 && !kvt_foe_pick(foe, 8))
				kvt_foe_random(foe, &request, sizeof(request));
			kvt_foe_post(foe, &request);
		}
		kvt_foe_random(foe, kvt_foe_table(foe, foe->raw.layout.ids), 4096);
		kvt_foe_ring(foe);
		kvt_foe_completions(foe, &good);
		kvt_foe_read(foe, 0);
	}
}

/* -------------------------------------------------------------- indices */

struct race {
	struct kvt_foe *foe;
	_Atomic int end;
};

/* Every word of both rings, moved while the daemon looks at them. */
static void *move_indices(void *arg)
{
	struct race *race = arg;
	struct kvw_channel_header *channel = kvt_channel(&race->foe->raw);
	struct kvt_rng rng = {.state = race->foe->rng.state + 1};
	_Atomic uint32_t *const words[] = {&channel->requests.tail, &channel->requests.head,
					   &channel->completions.tail, &channel->completions.head};

	while (!atomic_load(&race->end)) {
		_Atomic uint32_t *word = words[kvt_rng_below(&rng, 4)];
		uint32_t value = atomic_load(word);

		atomic_store(word, value + (uint32_t)kvt_rng_below(&rng, 64) - 32);
		atomic_store(word, value);
	}
	return NULL;
}

static void tear_at_once(struct kvt_foe *foe)
{
	struct kvw_channel_header *channel = kvt_channel(&foe->raw);

	switch (kvt_foe_pick(foe, 4)) {
	case 0:
		atomic_store(&channel->requests.tail, KVW_RING_RECORDS + 1 + kvt_foe_pick(foe, 1000));
		break;
	case 1:
		atomic_store(&channel->requests.tail, (uint32_t)kvt_rng_next(&foe->rng));
		break;
	case 2:
		atomic_store(&channel->completions.head, (uint32_t)kvt_rng_next(&foe->rng));
		break;
	default:
		/* A whole ring of records that nobody wrote. */
		kvt_foe_random(foe, (uint8_t *)channel + KVW_CHANNEL_REQUESTS, 4096);
		atomic_store(&channel->requests.tail, KVW_RING_RECORDS);
	}
}

void kvt_mode_torn_ring(struct kvt_foe *foe)
{
	struct race race = {.foe = foe};
	struct kvw_request request;
	pthread_t thread;

	kvt_foe_begin(foe, STRETCH_MS);
	if (kvt_foe_pick(foe, 2)) {
		tear_at_once(foe);
		kvt_foe_ring(foe);
		kvt_foe_read(foe, 20);
		return;
	}
	if (pthread_create(&thread, NULL, move_indices, &race))
		return;
	while (kvt_foe_goes_on(foe)) {
		request = kvt_foe_plausible(foe);
		kvt_foe_post(foe, &request);
		kvt_foe_ring(foe);
		kvt_foe_read(foe, 0);
	}
	atomic_store(&race.end, 1);
	pthread_join(thread, NULL);
}

/* Never takes a completion: the daemon must stop taking records, and do nothing else. */
void kvt_mode_completion_ring_stuck(struct kvt_foe *foe)
{
	const struct kvw_request open = {.type = KVW_REQUEST_OPEN, .row = UINT32_MAX};
	uint32_t waiting = 0;

	kvt_foe_begin(foe, 2 * STRETCH_MS);
	while (kvt_foe_goes_on(foe)) {
		if (!kvt_foe_post(foe, &open))
			continue;
		kvt_foe_ring(foe);
		kvt_foe_read(foe, 0);
		waiting = (uint32_t)kvw_ring_waiting(&foe->raw.completions);
	}
	if (waiting > KVW_RING_RECORDS)
		kvt_foe_breach(foe, "%u completions in a ring of %u", waiting, KVW_RING_RECORDS);
}

/* -------------------------------------------------------------- the doorbell */

void kvt_mode_doorbell_storm(struct kvt_foe *foe)
{
	const uint64_t most = UINT64_MAX - 1;
	const uint64_t one = 1;

	kvt_foe_begin(foe, STRETCH_MS);
	/* As full as it gets: further ones find no room. */
	if (write(foe->raw.fds[KVT_DOORBELL], &most, sizeof(most)) < 0)
		return;
	while (kvt_foe_goes_on(foe)) {
		if (write(foe->raw.fds[KVT_DOORBELL], &one, sizeof(one)) < 0 && errno != EAGAIN)
			break;
		foe->row->bytes += sizeof(one);
		/* Emptied now and then, so that every kind of edge comes. */
		if (!kvt_foe_pick(foe, 64)) {
			uint64_t count;

			if (read(foe->raw.fds[KVT_DOORBELL], &count, sizeof(count)) < 0)
				break;
		}
	}
}

static void *steal(void *arg)
{
	struct race *race = arg;
	uint64_t count;

	while (!atomic_load(&race->end))
		if (read(race->foe->raw.fds[KVT_DOORBELL], &count, sizeof(count)) < 0 && errno != EAGAIN)
			break;
	return NULL;
}

/* Takes the counts of its own doorbell away: only its own records may wait for the next poll. */
void kvt_mode_stolen_doorbell(struct kvt_foe *foe)
{
	const struct kvw_request open = {.type = KVW_REQUEST_OPEN};
	struct race race = {.foe = foe};
	struct kvw_completion done;
	pthread_t thread;

	kvt_foe_begin(foe, STRETCH_MS);
	if (pthread_create(&thread, NULL, steal, &race))
		return;
	while (kvt_foe_goes_on(foe)) {
		if (!kvt_foe_do(foe, &open, &done)) {
			if (!atomic_load(&kvt_channel(&foe->raw)->revoked))
				kvt_foe_breach(foe,
					       "a record is not looked at because the doorbell was read");
			break;
		}
		kvt_foe_post(foe, &(struct kvw_request){.type = KVW_REQUEST_RELEASE, .hold = done.hold});
	}
	atomic_store(&race.end, 1);
	pthread_join(thread, NULL);
}
