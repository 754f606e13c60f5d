/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hostile process's ring.
 */
#include <errno.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "foe.h"
#include "ipc/frame.h"

#define COMPLETION_MS 1000u
#define SLICE_MS 20u

int kvt_foe_post(struct kvt_foe *foe, const struct kvw_request *request)
{
	struct kvw_request record = *request;
	int ret;

	record.ticket = ++foe->raw.ticket;
	kvt_raw_place(&foe->raw, &record);
	ret = kvw_ring_post(&foe->raw.requests, &record);
	if (!ret)
		foe->row->bytes += sizeof(record);
	return ret;
}

void kvt_foe_ring(struct kvt_foe *foe)
{
	uint64_t one = 1;

	if (kvw_must_ring(foe->raw.memory[KVT_DIRECTORY]) &&
	    write(foe->raw.fds[KVT_DOORBELL], &one, sizeof(one)) == sizeof(one))
		foe->row->bytes += sizeof(one);
}

uint32_t kvt_foe_completions(struct kvt_foe *foe, uint32_t *out_good)
{
	struct kvw_completion completion;
	uint32_t count = 0;
	uint32_t good = 0;

	/* Bounded: the ring's words may be what this mode spoils. */
	while (count < KVW_RING_RECORDS && kvw_ring_take(&foe->raw.completions, &completion) == 1) {
		count++;
		good += !completion.status;
	}
	*out_good = good;
	return count;
}

bool kvt_foe_do(struct kvt_foe *foe, const struct kvw_request *request, struct kvw_completion *out)
{
	struct kvw_channel_header *channel = kvt_channel(&foe->raw);
	uint64_t deadline_ns = kvw_deadline_ns(COMPLETION_MS);
	uint32_t seen;

	if (kvt_foe_post(foe, request))
		return false;
	kvt_foe_ring(foe);
	for (;;) {
		seen = atomic_load(&channel->completion_futex);
		atomic_store(&channel->client_waiting, 1);
		kvw_store_load_fence();
		while (kvw_ring_take(&foe->raw.completions, out) == 1)
			if (out->ticket == foe->raw.ticket)
				return true;
		if (kvt_now_ns() > deadline_ns || atomic_load(&channel->revoked))
			return false;
		kvw_futex_wait(&channel->completion_futex, seen, SLICE_MS);
	}
}

void *kvt_foe_table(const struct kvt_foe *foe, uint64_t area)
{
	return (uint8_t *)foe->raw.memory[KVT_TABLES] + area;
}

struct kvw_request kvt_foe_plausible(struct kvt_foe *foe)
{
	const struct kvw_tables_params *params = &foe->raw.params;
	struct kvw_request request = {
		.type = 1 + kvt_foe_pick(foe, 7),
		.row = kvt_foe_pick(foe, params->rows + 1),
		.hold = kvt_foe_pick(foe, 2)
				? kvt_rng_next(&foe->rng)
				: (uint64_t)kvt_foe_pick(foe, 4096) << 16 | kvt_foe_pick(foe, 32),
		.first = kvt_foe_pick(foe, params->row_blocks + 2),
		.count = kvt_foe_pick(foe, params->row_blocks + 2),
		.timeline = kvt_foe_pick(foe, KVW_TIMELINES + 1),
		.step = kvt_foe_pick(foe, 4) ? kvt_foe_pick(foe, 1000) : kvt_rng_next(&foe->rng),
		.want = kvt_foe_pick(foe, params->row_blocks + 2),
		.most = kvt_foe_pick(foe, params->row_blocks + 2),
	};

	if (!kvt_foe_pick(foe, 16))
		request.answers = kvt_foe_pick(foe, 2) ? (uint32_t)kvt_rng_next(&foe->rng)
						       : kvt_foe_pick(foe, foe->raw.answer_count + 2);
	if (request.type == KVW_REQUEST_OPEN)
		request.flags = kvt_foe_pick(foe, 2) ? KVW_REQUEST_COMING : 0;
	return request;
}
