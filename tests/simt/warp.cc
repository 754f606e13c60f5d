/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of a whole warp. Each lane leaves its arguments and waits; the last to come computes all 32
 * results. A lane that comes with another operation, or from another line, is an error at once.
 */
#include "machine.h"
#include "simt.h"


void simt_meet(simt_warp_fn operation, void *arguments, struct simt_where where, const char *what)
{
	struct simt_machine *m = simt_machine_now;
	const uint32_t lane = m->current->index % SIMT_LANES;
	const uint32_t first = m->current->index - lane;
	struct simt_warp *warp = &m->warps[m->current->index / SIMT_LANES];

	if (warp->arrived && (warp->operation != operation || !simt_same_where(warp->where, where))) {
		simt_fail("warp disagrees: %s at %s:%d while other lanes wait at %s:%d", what, where.file,
			  where.line, warp->where.file, warp->where.line);
		simt_leave();
	}
	warp->operation = operation;
	warp->where = where;
	warp->lanes[lane] = arguments;
	warp->arrived |= 1u << lane;
	if (warp->arrived != ~0u) {
		simt_wait(what, where);
		return;
	}
	warp->arrived = 0;
	operation(warp->lanes);
	for (uint32_t i = 0; i < SIMT_LANES; i++)
		if (i != lane)
			simt_make_ready(&m->threads[first + i]);
}

static void nothing(void *const *)
{
}

void simt_warp_sync(const char *file, int line)
{
	simt_meet(nothing, nullptr, {file, line}, "the warp's barrier");
}

struct shuffle {
	uint32_t value;
	uint32_t from; /* lane */
	uint32_t result;
};

static void shuffle_all(void *const *lanes)
{
	for (uint32_t i = 0; i < SIMT_LANES; i++) {
		struct shuffle *to = static_cast<struct shuffle *>(lanes[i]);

		to->result = static_cast<struct shuffle *>(lanes[to->from % SIMT_LANES])->value;
	}
}

uint32_t simt_shuffle(uint32_t value, uint32_t from, const char *file, int line)
{
	struct shuffle arguments = {value, from, 0};

	simt_meet(shuffle_all, &arguments, {file, line}, "a shuffle");
	return arguments.result;
}

uint32_t simt_shuffle_xor(uint32_t value, uint32_t mask, const char *file, int line)
{
	return simt_shuffle(value, simt_lane() ^ mask, file, line);
}

struct vote {
	uint32_t predicate;
	uint32_t result;
};

static void vote_all(void *const *lanes)
{
	uint32_t ballot = 0;

	for (uint32_t i = 0; i < SIMT_LANES; i++)
		ballot |= (static_cast<struct vote *>(lanes[i])->predicate ? 1u : 0u) << i;
	for (uint32_t i = 0; i < SIMT_LANES; i++)
		static_cast<struct vote *>(lanes[i])->result = ballot;
}

uint32_t simt_ballot(bool predicate, const char *file, int line)
{
	struct vote arguments = {predicate, 0};

	simt_meet(vote_all, &arguments, {file, line}, "a vote");
	return arguments.result;
}
