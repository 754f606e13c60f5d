/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include "ipc/frame.h"

#include "client.h"
#include "error.h"
#include "post.h"

/* After a refusal: not before this long. */
#define RETRY_NS 5000000ull

void kvc_lease_init(struct kvc_lease *lease, struct kvc_block *blocks)
{
	uint32_t i;

	*lease = (struct kvc_lease){.blocks = blocks, .free_head = -1, .ask_most = UINT32_MAX};
	for (i = 0; i < KVW_TIMELINES; i++)
		lease->drains[i] = (struct kvc_drain){.head = -1, .tail = -1};
}

static void push_free(struct kvc_lease *lease, int32_t id)
{
	struct kvc_block *block = &lease->blocks[id];

	block->owned = KVC_FREE;
	block->next = lease->free_head;
	lease->free_head = id;
	lease->free_count++;
}

static int32_t pop_free(struct kvc_lease *lease)
{
	int32_t id = lease->free_head;

	if (id < 0)
		return -1;
	lease->free_head = lease->blocks[id].next;
	lease->free_count--;
	return id;
}

static void push_draining(struct kvc_lease *lease, int32_t id, uint32_t timeline, uint64_t step)
{
	struct kvc_drain *drain = &lease->drains[timeline];

	lease->blocks[id].owned = KVC_DRAINING;
	lease->blocks[id].step = step;
	lease->blocks[id].next = -1;
	*(drain->tail < 0 ? &drain->head : &lease->blocks[drain->tail].next) = id;
	drain->tail = id;
	lease->draining_count++;
}

/* The list is not empty. */
static int32_t pop_draining(struct kvc_lease *lease, uint32_t timeline)
{
	struct kvc_drain *drain = &lease->drains[timeline];
	int32_t id = drain->head;

	drain->head = lease->blocks[id].next;
	if (drain->head < 0)
		drain->tail = -1;
	lease->draining_count--;
	return id;
}

/* Sinks lie below the data blocks; nobody is granted one. */
static bool is_data(const struct kvc_pool *pool, int32_t id)
{
	return id >= (int32_t)(pool->geometry.blocks - pool->data_blocks) &&
	       id < (int32_t)pool->geometry.blocks;
}

int kvc_lease_check_foreign(struct kvp_client *client, int32_t id, uint64_t generation, const char *what)
{
	if (!is_data(client->pool, id) || !generation ||
	    client->engine->lease.blocks[id].owned != KVC_FOREIGN)
		return kvc_break(client, what);
	return 0;
}

int kvc_lease_adopt(struct kvp_client *client, int32_t id, uint64_t generation)
{
	struct kvc_block *blocks = client->engine->lease.blocks;
	int ret = kvc_lease_check_foreign(client, id, generation, "a block that is not the pool's to grant");

	if (ret)
		return ret;
	blocks[id].generation = generation;
	blocks[id].owned = KVC_IN_ROW;
	return 0;
}

int kvc_lease_add(struct kvp_client *client, const struct kvw_answer *granted)
{
	struct kvw_answer answer = kvc_load_answer(granted);
	int ret = kvc_lease_adopt(client, answer.id, answer.generation);

	if (!ret)
		push_free(&client->engine->lease, answer.id);
	return ret;
}

int32_t kvc_lease_take(struct kvc_engine *engine, uint64_t *out_generation)
{
	struct kvc_lease *lease = &engine->lease;
	int32_t id = pop_free(lease);

	if (id >= 0) {
		lease->blocks[id].owned = KVC_IN_ROW;
		lease->taken++;
		*out_generation = lease->blocks[id].generation;
	}
	return id;
}

void kvc_lease_forget(struct kvc_engine *engine, int32_t id)
{
	engine->lease.blocks[id].owned = KVC_FOREIGN;
}

void kvc_lease_give(struct kvc_engine *engine, int32_t id, uint32_t timeline, uint64_t step)
{
	if (kvc_reached(engine, timeline) >= step)
		push_free(&engine->lease, id);
	else
		push_draining(&engine->lease, id, timeline, step);
}

/* In the order of giving up: a block behind one of a later step waits a little longer than it must. */
static void drain(struct kvc_lease *lease, uint32_t timeline, uint64_t reached)
{
	const struct kvc_drain *list = &lease->drains[timeline];

	while (list->head >= 0 && lease->blocks[list->head].step <= reached)
		push_free(lease, pop_draining(lease, timeline));
}

static void drain_all(struct kvc_engine *engine)
{
	uint32_t t;

	for (t = 0; t < KVW_TIMELINES && engine->lease.draining_count; t++)
		drain(&engine->lease, t, kvc_reached(engine, t));
}

/* ------------------------------------------------------------------ giving back */

/* Forgets RETURN records that the daemon has read: their places in the returns area are ours again. */
static void land_returns(struct kvc_engine *engine)
{
	struct kvc_lease *lease = &engine->lease;

	while (lease->flight_head != lease->flight_tail) {
		uint32_t i = lease->flight_head % KVC_RETURNS_FLIGHT;

		if (!kvw_ring_passed(&engine->requests, lease->flight[i].mark))
			return;
		lease->returns_head = lease->flight[i].end;
		lease->flight_head++;
	}
}

/* Blocks that a record can name now. */
static uint32_t returns_room(struct kvc_engine *engine)
{
	struct kvc_lease *lease = &engine->lease;
	int space = kvw_ring_space(&engine->requests);

	land_returns(engine);
	if (lease->flight_tail - lease->flight_head == KVC_RETURNS_FLIGHT || space <= (int)KVC_RING_KEPT)
		return 0;
	return KVW_RETURN_ENTRIES - (lease->returns_tail - lease->returns_head);
}

static void name_returned(struct kvp_client *client, int32_t id)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_lease *lease = &engine->lease;
	struct kvw_block_ref *returns = kvc_tables_at(client, engine->tables.returns, 0, 0);

	returns[lease->returns_tail++ % KVW_RETURN_ENTRIES] =
		(struct kvw_block_ref){.id = id, .generation = lease->blocks[id].generation};
	lease->blocks[id].owned = KVC_FOREIGN;
}

static void post_returns(struct kvp_client *client, uint32_t first, uint32_t timeline, uint64_t step)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_lease *lease = &engine->lease;
	struct kvw_request record = {
		.type = KVW_REQUEST_RETURN,
		.first = first % KVW_RETURN_ENTRIES,
		.count = lease->returns_tail - first,
		.timeline = timeline,
		.step = step,
	};
	uint32_t i = lease->flight_tail % KVC_RETURNS_FLIGHT;

	/* returns_room() has seen the room; a ring that breaks in between takes the session with it. */
	if (kvc_post_telling(client, &record))
		return;
	lease->flight[i].mark = engine->requests.own;
	lease->flight[i].end = lease->returns_tail;
	lease->flight_tail++;
}

static void return_free(struct kvp_client *client, uint32_t count)
{
	struct kvc_lease *lease = &client->engine->lease;
	uint32_t first = lease->returns_tail;
	uint32_t room = returns_room(client->engine);

	for (count = count < room ? count : room; count && lease->free_head >= 0; count--)
		name_returned(client, pop_free(lease));
	if (lease->returns_tail != first)
		post_returns(client, first, 0, 0);
}

/* From one list, blocks of one step: a record carries one. Returns how many. */
static uint32_t return_draining(struct kvp_client *client, uint32_t timeline, uint32_t count)
{
	struct kvc_lease *lease = &client->engine->lease;
	struct kvc_drain *list = &lease->drains[timeline];
	uint32_t first = lease->returns_tail;
	uint32_t room = returns_room(client->engine);
	uint64_t step;

	if (list->head < 0 || !room)
		return 0;
	step = lease->blocks[list->head].step;
	for (count = count < room ? count : room; count && list->head >= 0; count--) {
		if (lease->blocks[list->head].step != step)
			break;
		name_returned(client, pop_draining(lease, timeline));
	}
	post_returns(client, first, timeline, step);
	return lease->returns_tail - first;
}

/* Free blocks that the engine wants to have at least. */
static uint32_t floor_of(const struct kvc_lease *lease)
{
	return kvc_max(lease->low, lease->wanted);
}

/*
 * Above the high mark: free ones, as far as the low mark allows; then those that wait for a step, for which the daemon waits in our stead.
 * (Free ones below the low mark would be asked for again at once.)
 */
static void trim(struct kvp_client *client)
{
	struct kvc_lease *lease = &client->engine->lease;
	uint32_t held = lease->free_count + lease->draining_count;
	uint32_t spare = lease->free_count > floor_of(lease) ? lease->free_count - floor_of(lease) : 0;
	uint32_t t, done;

	return_free(client, held - lease->high < spare ? held - lease->high : spare);
	for (t = 0; t < KVW_TIMELINES; t++) {
		do {
			held = lease->free_count + lease->draining_count;
			done = held > lease->high ? return_draining(client, t, held - lease->high) : 0;
		} while (done);
	}
}

/* ------------------------------------------------------------------ asking */

/* Blocks to ask for now: none above the low mark; then up to the high mark, counting what drains, but at least to the low mark. */
static uint32_t shortage(const struct kvc_engine *engine)
{
	const struct kvc_lease *lease = &engine->lease;
	/* Half of the places: other answers go on in between. */
	uint32_t limit = kvc_min(engine->answer_count / 2, KVW_LEASE_ENTRIES);
	uint32_t low = floor_of(lease);
	uint32_t held = lease->free_count + lease->draining_count;
	uint32_t count = low > lease->free_count ? low - lease->free_count : 0;

	if (count && lease->high > held)
		count = kvc_max(count, lease->high - held);
	return kvc_min(kvc_min(count, lease->ask_most), limit);
}

static bool too_soon(const struct kvc_lease *lease)
{
	return lease->refusal && kvw_now_ns() < lease->retry_ns;
}

static void ask(struct kvp_client *client)
{
	struct kvc_lease *lease = &client->engine->lease;
	struct kvw_request record = {.type = KVW_REQUEST_LEASE, .count = shortage(client->engine)};

	if (!record.count || too_soon(lease) || kvc_post_asking(client, &record))
		return;
	lease->asking = true;
	lease->rung = false;
	lease->coming = record.count;
}

void kvc_lease_pump(struct kvp_client *client)
{
	struct kvc_lease *lease = &client->engine->lease;

	drain_all(client->engine);
	if (kvc_is_gone(client))
		return;
	if (lease->free_count + lease->draining_count > lease->high)
		trim(client);
	if (!lease->asking && lease->free_count < floor_of(lease))
		ask(client);
	if (lease->asking && !lease->rung && lease->free_count < lease->critical) {
		lease->rung = true;
		kvc_ring_doorbell(client->engine);
	}
}

/* All or nothing: ask for what there is next time, for one at least, so that the end of the drought is seen. */
static uint32_t most_after(int status, uint64_t available)
{
	if (!status)
		return UINT32_MAX;
	if (status != -KVP_ENOBLOCKS || !available)
		return 1;
	return available < UINT32_MAX ? (uint32_t)available : UINT32_MAX - 1;
}

static int add_granted(struct kvp_client *client, const struct kvw_answer *answers, uint32_t count)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < count && !ret; i++)
		ret = kvc_lease_add(client, &answers[i]);
	return ret;
}

int kvc_lease_answer(struct kvp_client *client, const struct kvw_answer *answers,
		     const struct kvw_completion *completion)
{
	struct kvc_lease *lease = &client->engine->lease;

	lease->asking = false;
	lease->coming = 0;
	lease->refusal = completion->status;
	lease->ask_most =
		most_after(completion->status, completion->free_blocks + completion->evictable_blocks);
	lease->retry_ns = kvw_now_ns() + RETRY_NS;
	return add_granted(client, answers, completion->granted);
}
