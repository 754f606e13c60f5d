/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The raw client's ring, and short forms of the verbs.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "raw.h"

/*
 * A wait is cut so that a lost wake-up shows as slowness that the watchdog finds, not as a hang of one call.
 */
#define SLICE_MS 100u

struct kvw_channel_header *kvt_channel(const struct kvt_raw *raw)
{
	return raw->memory[KVT_CHANNEL];
}

void kvt_raw_place(const struct kvt_raw *raw, struct kvw_request *request)
{
	uint64_t at = KVT_LEASED + (uint64_t)request->row * raw->params.row_blocks;

	if (request->answers)
		return;
	if (request->type == KVW_REQUEST_LEASE)
		at = request->first;
	else if (request->type != KVW_REQUEST_OPEN)
		at += request->first;
	if (at < raw->answer_count)
		request->answers = (uint32_t)at;
}

uint64_t kvt_raw_post(struct kvt_raw *raw, const struct kvw_request *request)
{
	struct kvw_request record = *request;

	record.ticket = ++raw->ticket;
	kvt_raw_place(raw, &record);
	assert_int_equal(kvw_ring_post(&raw->requests, &record), 0);
	return record.ticket;
}

void kvt_raw_ring(struct kvt_raw *raw)
{
	uint64_t one = 1;

	/* EAGAIN: the count is full, so it was rung. */
	if (kvw_must_ring(raw->memory[KVT_DIRECTORY]) &&
	    write(raw->fds[KVT_DOORBELL], &one, sizeof(one)) != sizeof(one))
		assert_int_equal(errno, EAGAIN);
}

struct kvw_completion kvt_raw_completion(struct kvt_raw *raw, uint64_t ticket)
{
	struct kvw_channel_header *channel = kvt_channel(raw);
	struct kvw_completion completion;
	uint32_t seen;

	for (;;) {
		seen = atomic_load(&channel->completion_futex);
		atomic_store(&channel->client_waiting, 1);
		kvw_store_load_fence();
		if (kvw_ring_take(&raw->completions, &completion) == 1)
			break;
		assert_int_equal(atomic_load(&channel->revoked), 0);
		kvw_futex_wait(&channel->completion_futex, seen, SLICE_MS);
	}
	atomic_store(&channel->client_waiting, 0);
	assert_int_equal(completion.ticket, ticket);
	return completion;
}

struct kvw_completion kvt_raw_do(struct kvt_raw *raw, struct kvw_request request)
{
	uint64_t ticket = kvt_raw_post(raw, &request);

	kvt_raw_ring(raw);
	return kvt_raw_completion(raw, ticket);
}

/* -------------------------------------------------------------- tables */

static void *table(const struct kvt_raw *raw, uint64_t area, uint32_t row, uint32_t entry_bytes)
{
	return (uint8_t *)raw->memory[KVT_TABLES] + area +
	       (uint64_t)row * raw->params.row_blocks * entry_bytes;
}

const struct kvw_answer *kvt_leased(const struct kvt_raw *raw)
{
	return raw->memory[KVT_ANSWERS];
}

const struct kvw_answer *kvt_answers(const struct kvt_raw *raw, uint32_t row)
{
	return kvt_leased(raw) + KVT_LEASED + (size_t)row * raw->params.row_blocks;
}

void kvt_set_hashes(struct kvt_raw *raw, uint32_t row, uint64_t chain, uint32_t count)
{
	uint8_t *hashes = table(raw, raw->layout.hashes, row, raw->params.hash_bytes);
	uint32_t i;

	memset(hashes, 0, (size_t)count * raw->params.hash_bytes);
	for (i = 0; i < count; i++) {
		const uint64_t name[2] = {chain, i + 1};

		memcpy(hashes + (size_t)i * raw->params.hash_bytes, name,
		       raw->params.hash_bytes < sizeof(name) ? raw->params.hash_bytes : sizeof(name));
	}
}

/*
 * GCC 12.2 at -O2 finds this function free of effects once it has rewritten the loop's pointers, and drops the
 * call from kvt_open(); -fno-ipa-pure-const -fno-ipa-modref, -fno-ivopts or this attribute keep it.
 */
#if defined(__GNUC__) && !defined(__clang__)
#define KEEP_CALLS __attribute__((noipa))
#else
#define KEEP_CALLS
#endif

KEEP_CALLS void kvt_accept(struct kvt_raw *raw, uint32_t row, uint32_t first, uint32_t count)
{
	int32_t *ids = table(raw, raw->layout.ids, row, sizeof(int32_t));
	uint64_t *generations = table(raw, raw->layout.generations, row, sizeof(uint64_t));
	const struct kvw_answer *answers = kvt_answers(raw, row);
	uint32_t i;

	for (i = first; i < first + count; i++) {
		ids[i] = answers[i].id;
		generations[i] = answers[i].generation;
	}
}

/* -------------------------------------------------------------- verbs */

struct kvw_completion kvt_open(struct kvt_raw *raw, uint32_t row, uint64_t chain, uint32_t count,
			       uint32_t want)
{
	struct kvw_completion completion;

	kvt_set_hashes(raw, row, chain, count);
	completion = kvt_raw_do(raw, (struct kvw_request){
					     .type = KVW_REQUEST_OPEN,
					     .row = row,
					     .first = count,
					     .count = count,
					     .want = want,
					     .most = want,
				     });
	if (!completion.status)
		kvt_accept(raw, row, 0, completion.matched + completion.granted);
	return completion;
}

struct kvw_completion kvt_publish(struct kvt_raw *raw, uint32_t row, uint64_t hold, uint32_t first,
				  uint32_t count, uint32_t timeline, uint64_t step)
{
	return kvt_raw_do(raw, (struct kvw_request){
				       .type = KVW_REQUEST_PUBLISH,
				       .row = row,
				       .hold = hold,
				       .first = first,
				       .count = count,
				       .timeline = timeline,
				       .step = step,
			       });
}

void kvt_return_blocks(struct kvt_raw *raw, uint32_t row, uint32_t first, uint32_t count)
{
	const int32_t *ids = table(raw, raw->layout.ids, row, sizeof(int32_t));
	const uint64_t *generations = table(raw, raw->layout.generations, row, sizeof(uint64_t));
	struct kvw_block_ref *returns =
		(struct kvw_block_ref *)((uint8_t *)raw->memory[KVT_TABLES] + raw->layout.returns);
	uint32_t i;

	for (i = 0; i < count; i++)
		returns[i] =
			(struct kvw_block_ref){.id = ids[first + i], .generation = generations[first + i]};
	kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_RETURN, .count = count});
	kvt_drain(raw);
}

void kvt_release(struct kvt_raw *raw, uint64_t hold)
{
	const uint64_t holds = kvt_client_state(raw, raw->session).holds;

	kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_RELEASE, .hold = hold});
	kvt_drain(raw);
	/* A reached step's references drop soon after the ring was read, in slices; the watchdog ends a wait in vain. */
	while (kvt_client_state(raw, raw->session).holds >= holds)
		;
}

void kvt_drain(struct kvt_raw *raw)
{
	const struct kvw_msg_DRAIN drain = {.tail = raw->requests.own};

	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_DRAIN, &drain), 0);
	assert_int_equal(raw->answer.DRAIN_OK.head, raw->requests.own);
}

void kvt_step_done(struct kvt_raw *raw, uint32_t timeline, uint64_t step)
{
	struct kvw_timelines *timelines = raw->memory[KVT_TIMELINES];

	atomic_store_explicit(&timelines->line[timeline].step, step, memory_order_release);
}
