/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The naive books: every question is answered by looking at all blocks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "fake_daemon.h"

#define MAX_HOLDS 8192u

static void fault(struct fake_daemon *fake, const char *what, int64_t number)
{
	if (!fake->books.faults++)
		snprintf(fake->books.fault, sizeof(fake->books.fault), "%s (%lld)", what, (long long)number);
	fprintf(stderr, "fake daemon: %s (%lld)\n", what, (long long)number);
}

void fake_books_init(struct fake_daemon *fake, uint32_t blocks)
{
	fake->books.blocks = blocks;
	fake->books.block = calloc(blocks, sizeof(*fake->books.block));
	fake->books.holds = calloc(MAX_HOLDS, sizeof(*fake->books.holds));
	fake->books.next_hold = 1000;
	if (!fake->books.block || !fake->books.holds)
		abort();
}

static void set_state(struct fake_daemon *fake, int32_t id, uint32_t state)
{
	_Atomic uint64_t *words;

	fake->books.block[id].state = state;
	if (!fake->directory)
		return;
	words = (_Atomic uint64_t *)(void *)((uint8_t *)fake->directory + fake->directory->block_words);
	atomic_store_explicit(&words[id], kvw_block_word(fake->books.block[id].generation, state),
			      memory_order_release);
}

/* ------------------------------------------------------------------ the index that clients see */

static _Atomic uint64_t *bucket_of(struct fake_daemon *fake, const uint8_t *hash, uint64_t *key)
{
	struct kvw_bucket *buckets =
		(struct kvw_bucket *)(void *)((uint8_t *)fake->directory + fake->directory->buckets);

	*key = kvw_index_key(1, atomic_load(&fake->directory->epoch), 0, hash, fake->books.hash_bytes);
	return buckets[*key & (fake->directory->bucket_count - 1)].entries;
}

/* Puts the block into the index, or takes it out. */
static void index_set(struct fake_daemon *fake, int32_t id, bool in)
{
	_Atomic uint64_t *entries;
	uint64_t key, entry;
	uint32_t i;

	if (!fake->directory)
		return;
	entries = bucket_of(fake, fake->books.block[id].hash, &key);
	entry = key >> 32 << 32 | (uint64_t)id;
	for (i = 0; i < KVW_BUCKET_ENTRIES; i++)
		if (atomic_load(&entries[i]) == (in ? 0 : entry)) {
			atomic_store(&entries[i], in ? entry : 0);
			return;
		}
}

static int32_t find(struct fake_daemon *fake, const uint8_t *hash)
{
	uint32_t i;

	for (i = FAKE_FIRST_DATA; i < fake->books.blocks; i++) {
		const struct fake_block *block = &fake->books.block[i];

		if ((block->state == KVW_BLOCK_PENDING || block->state == KVW_BLOCK_CACHED) &&
		    !memcmp(block->hash, hash, fake->books.hash_bytes))
			return (int32_t)i;
	}
	return -1;
}

/* ------------------------------------------------------------------ time */

static bool reached(const struct fake_daemon *fake, uint32_t timeline, uint64_t step)
{
	return atomic_load_explicit(&fake->timelines->line[timeline].step, memory_order_acquire) >= step;
}

static void drop_reference(struct fake_daemon *fake, int32_t id)
{
	struct fake_block *block = &fake->books.block[id];

	if (!block->references)
		fault(fake, "a reference too many is dropped", id);
	else
		block->references--;
	block->last_use = ++fake->books.clock;
	if (!block->references && block->state == KVW_BLOCK_ORPHAN)
		set_state(fake, id, KVW_BLOCK_FREE);
}

static void end_hold(struct fake_daemon *fake, struct fake_hold *hold)
{
	while (hold->length)
		drop_reference(fake, hold->blocks[--hold->length]);
	free(hold->blocks);
	memset(hold, 0, sizeof(*hold));
}

static void progress(struct fake_daemon *fake)
{
	uint32_t i;

	for (i = FAKE_FIRST_DATA; i < fake->books.blocks; i++) {
		struct fake_block *block = &fake->books.block[i];

		if (block->state == KVW_BLOCK_PENDING && block->writer == FAKE_SESSION &&
		    reached(fake, block->timeline, block->step))
			set_state(fake, (int32_t)i, KVW_BLOCK_CACHED);
		if (block->state == KVW_BLOCK_DRAINING && reached(fake, block->timeline, block->step))
			set_state(fake, (int32_t)i, KVW_BLOCK_FREE);
	}
	for (i = 0; i < MAX_HOLDS; i++) {
		struct fake_hold *hold = &fake->books.holds[i];

		if (hold->id && hold->releasing && reached(fake, hold->timeline, hold->step))
			end_hold(fake, hold);
	}
}

/* ------------------------------------------------------------------ granting */

static uint32_t available(struct fake_daemon *fake, uint64_t *free_blocks, uint64_t *evictable)
{
	uint32_t i;

	*free_blocks = *evictable = 0;
	for (i = FAKE_FIRST_DATA; i < fake->books.blocks; i++) {
		*free_blocks += fake->books.block[i].state == KVW_BLOCK_FREE;
		*evictable +=
			fake->books.block[i].state == KVW_BLOCK_CACHED && !fake->books.block[i].references;
	}
	return (uint32_t)(*free_blocks + *evictable);
}

static int32_t take_free(struct fake_daemon *fake)
{
	int32_t victim = -1;
	uint32_t i;

	for (i = FAKE_FIRST_DATA; i < fake->books.blocks; i++) {
		const struct fake_block *block = &fake->books.block[i];

		if (block->state == KVW_BLOCK_FREE)
			return (int32_t)i;
		if (block->state == KVW_BLOCK_CACHED && !block->references &&
		    (victim < 0 || block->last_use < fake->books.block[victim].last_use))
			victim = (int32_t)i;
	}
	if (victim >= 0)
		index_set(fake, victim, false);
	return victim;
}

/* Of block `index` of the row, or of the lease. */
static void put_answer(struct fake_daemon *fake, const struct kvw_request *request, uint32_t index,
		       struct kvw_answer answer)
{
	uint64_t at = request->answers + index - (request->type == KVW_REQUEST_OPEN ? 0 : request->first);

	if (fake->options.on_answer)
		fake->options.on_answer(fake->options.arg, request, index, &answer);
	if (at >= fake->answer_count)
		abort();
	if ((int32_t)(atomic_load(&fake->channel->completions.head) - fake->answer_ends[at]) < 0)
		fault(fake, "a place for answers was named again before its answer was taken", (int64_t)at);
	fake->answer_ends[at] = fake->completions.own + 1;
	if (pwrite(fake->fds[KVW_SEGMENT_ANSWERS], &answer, sizeof(answer), (off_t)(at * sizeof(answer))) !=
	    sizeof(answer))
		abort();
}

/* count blocks into answers [first ..) or none. */
static int grant(struct fake_daemon *fake, const struct kvw_request *request, uint32_t first, uint32_t count,
		 struct kvw_completion *completion)
{
	uint32_t i;

	if (available(fake, &completion->free_blocks, &completion->evictable_blocks) < count) {
		completion->limit = count;
		return -KVP_ENOBLOCKS;
	}
	for (i = 0; i < count; i++) {
		int32_t id = take_free(fake);
		struct fake_block *block = &fake->books.block[id];

		block->generation++;
		set_state(fake, id, KVW_BLOCK_LEASED);
		put_answer(fake, request, first + i,
			   (struct kvw_answer){.id = id, .generation = block->generation});
	}
	completion->granted = count;
	return 0;
}

/* ------------------------------------------------------------------ verbs */

static void read_tables(const struct fake_daemon *fake, uint64_t offset, void *out, size_t bytes)
{
	if (pread(fake->fds[KVW_SEGMENT_TABLES], out, bytes, (off_t)offset) != (ssize_t)bytes)
		abort();
}

static void read_hash(const struct fake_daemon *fake, uint32_t row, uint32_t index, uint8_t *out)
{
	uint64_t cell = (uint64_t)row * fake->tables_params.row_blocks + index;

	memset(out, 0, KVW_MAX_HASH_BYTES);
	read_tables(fake, fake->tables.hashes + cell * fake->books.hash_bytes, out, fake->books.hash_bytes);
}

static struct fake_hold *hold_of(struct fake_daemon *fake, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < MAX_HOLDS; i++)
		if (fake->books.holds[i].id == id && id)
			return &fake->books.holds[i];
	fault(fake, "an unknown hold", (int64_t)id);
	return NULL;
}

static struct fake_hold *new_hold(struct fake_daemon *fake)
{
	uint32_t i;

	for (i = 0; i < MAX_HOLDS; i++)
		if (!fake->books.holds[i].id) {
			fake->books.holds[i].id = ++fake->books.next_hold;
			fake->books.holds[i].blocks = calloc(fake->tables_params.row_blocks, sizeof(int32_t));
			return &fake->books.holds[i];
		}
	abort();
}

static void hold_add(struct fake_daemon *fake, struct fake_hold *hold, int32_t id)
{
	hold->blocks[hold->length++] = id;
	fake->books.block[id].references++;
}

static uint32_t match(struct fake_daemon *fake, const struct kvw_request *request, struct fake_hold *hold)
{
	uint8_t hash[KVW_MAX_HASH_BYTES];
	uint32_t i;

	for (i = 0; i < request->first; i++) {
		struct kvw_answer answer = {.flags = KVW_ANSWER_MATCHED};
		int32_t id;

		read_hash(fake, request->row, i, hash);
		id = find(fake, hash);
		if (id < 0)
			break;
		if (fake->books.block[id].state == KVW_BLOCK_PENDING) {
			if (fake->books.block[id].writer != FAKE_SESSION &&
			    !(request->flags & KVW_REQUEST_COMING))
				break;
			answer.flags |= KVW_ANSWER_COMING;
		}
		answer.id = id;
		answer.generation = fake->books.block[id].generation;
		answer.writer = fake->books.block[id].writer;
		hold_add(fake, hold, id);
		put_answer(fake, request, i, answer);
	}
	return i;
}

static int do_open(struct fake_daemon *fake, const struct kvw_request *request,
		   struct kvw_completion *completion)
{
	struct fake_hold *hold = new_hold(fake);
	uint64_t want;
	int ret;

	fake->books.opens++;
	completion->matched = match(fake, request, hold);
	want = request->want > completion->matched ? request->want - completion->matched : 0;
	want = want < request->most ? want : request->most;
	ret = grant(fake, request, completion->matched, (uint32_t)want, completion);
	if (ret) {
		end_hold(fake, hold);
		completion->matched = 0;
		return ret;
	}
	completion->hold = hold->id;
	return 0;
}

static int publish_one(struct fake_daemon *fake, const struct kvw_request *request, struct fake_hold *hold,
		       uint32_t index, struct kvw_completion *completion)
{
	uint64_t cell = (uint64_t)request->row * fake->tables_params.row_blocks + index;
	uint8_t hash[KVW_MAX_HASH_BYTES];
	struct kvw_answer answer = {0};
	struct fake_block *block;
	uint64_t generation;
	int32_t id, there;

	read_tables(fake, fake->tables.ids + cell * sizeof(id), &id, sizeof(id));
	read_tables(fake, fake->tables.generations + cell * sizeof(generation), &generation,
		    sizeof(generation));
	read_hash(fake, request->row, index, hash);
	block = &fake->books.block[id];
	if (block->state != KVW_BLOCK_LEASED || block->generation != generation) {
		fault(fake, "a publish of a block that is not leased", id);
		return -KVP_ESTALE;
	}
	there = find(fake, hash);
	fake->books.published++;
	if (there >= 0) {
		fake->books.duplicates++;
		completion->matched++;
		answer.flags = KVW_ANSWER_DUPLICATE;
	} else {
		memcpy(block->hash, hash, sizeof(hash));
		block->writer = FAKE_SESSION;
		block->timeline = request->timeline;
		block->step = request->step;
		set_state(fake, id,
			  reached(fake, request->timeline, request->step) ? KVW_BLOCK_CACHED
									  : KVW_BLOCK_PENDING);
		index_set(fake, id, true);
		there = id;
	}
	hold_add(fake, hold, there);
	answer.id = there;
	answer.generation = fake->books.block[there].generation;
	answer.writer = fake->books.block[there].writer;
	put_answer(fake, request, index, answer);
	completion->granted++;
	return 0;
}

static int do_publish(struct fake_daemon *fake, const struct kvw_request *request,
		      struct kvw_completion *completion)
{
	struct fake_hold *hold = hold_of(fake, request->hold);
	uint32_t i;
	int ret = 0;

	if (!hold || hold->releasing)
		return -KVP_ESTALE;
	if (request->first != hold->length) {
		fault(fake, "a publish that does not begin at the hold's length", request->first);
		return -KVP_ESTALE;
	}
	for (i = request->first; !ret && i < request->first + request->count; i++)
		ret = publish_one(fake, request, hold, i, completion);
	return ret;
}

static int do_truncate(struct fake_daemon *fake, const struct kvw_request *request)
{
	struct fake_hold *hold = hold_of(fake, request->hold);

	if (!hold)
		return -KVP_ESTALE;
	while (hold->length > request->first)
		drop_reference(fake, hold->blocks[--hold->length]);
	return 0;
}

static int do_release(struct fake_daemon *fake, const struct kvw_request *request)
{
	struct fake_hold *hold = hold_of(fake, request->hold);

	if (!hold)
		return -KVP_ESTALE;
	hold->releasing = true;
	hold->timeline = request->timeline;
	hold->step = request->step;
	return 0;
}

static int do_return(struct fake_daemon *fake, const struct kvw_request *request)
{
	uint32_t i;

	for (i = 0; i < request->count; i++) {
		uint64_t at = (request->first + i) % KVW_RETURN_ENTRIES;
		struct kvw_block_ref ref;
		struct fake_block *block;

		read_tables(fake, fake->tables.returns + at * sizeof(ref), &ref, sizeof(ref));
		block = &fake->books.block[ref.id];
		if (block->state != KVW_BLOCK_LEASED || block->generation != ref.generation) {
			fault(fake, "a return of a block that is not leased", ref.id);
			return -KVP_ESTALE;
		}
		block->timeline = request->timeline;
		block->step = request->step;
		set_state(fake, ref.id, KVW_BLOCK_DRAINING);
		fake->books.returned++;
	}
	return 0;
}

static int carry_out(struct fake_daemon *fake, const struct kvw_request *request,
		     struct kvw_completion *completion)
{
	switch (request->type) {
	case KVW_REQUEST_OPEN:
		return do_open(fake, request, completion);
	case KVW_REQUEST_EXTEND:
		return grant(fake, request, request->first, request->count, completion);
	case KVW_REQUEST_LEASE:
		return grant(fake, request, request->first, request->count, completion);
	case KVW_REQUEST_PUBLISH:
		return do_publish(fake, request, completion);
	case KVW_REQUEST_TRUNCATE:
		return do_truncate(fake, request);
	case KVW_REQUEST_RELEASE:
		return do_release(fake, request);
	case KVW_REQUEST_RETURN:
		return do_return(fake, request);
	default:
		fault(fake, "an unknown verb", request->type);
		return -KVP_EPROTO;
	}
}

static bool always_answered(uint32_t type)
{
	return type == KVW_REQUEST_OPEN || type == KVW_REQUEST_EXTEND || type == KVW_REQUEST_LEASE ||
	       type == KVW_REQUEST_PUBLISH;
}

static void serve_one(struct fake_daemon *fake, const struct kvw_request *request)
{
	struct kvw_completion completion = {.type = request->type, .ticket = request->ticket};

	fake->books.records++;
	completion.status = carry_out(fake, request, &completion);
	if (!completion.status && !always_answered(request->type))
		return;
	if (fake->options.on_completion &&
	    fake->options.on_completion(fake->options.arg, request, &completion))
		return;
	kvw_ring_post(&fake->completions, &completion);
	if (fake->options.tail_lie)
		atomic_fetch_add(&fake->completions.words->tail, fake->options.tail_lie);
}

void fake_books_serve(struct fake_daemon *fake)
{
	struct kvw_request request;
	uint32_t served = 0;

	progress(fake);
	while (kvw_ring_peek(&fake->requests, &request) == 1) {
		serve_one(fake, &request);
		kvw_ring_take(&fake->requests, &request);
		served++;
	}
	progress(fake);
	kvw_store_load_fence();
	if (served && atomic_load(&fake->channel->client_waiting)) {
		atomic_fetch_add(&fake->channel->completion_futex, 1);
		kvw_futex_wake(&fake->channel->completion_futex, KVW_MAX_WOKEN);
	}
}

void fake_books_end_session(struct fake_daemon *fake)
{
	uint32_t i;

	for (i = 0; fake->books.holds && i < MAX_HOLDS; i++)
		if (fake->books.holds[i].id)
			end_hold(fake, &fake->books.holds[i]);
	for (i = FAKE_FIRST_DATA; i < fake->books.blocks; i++) {
		const struct fake_block *block = &fake->books.block[i];

		if (block->state == KVW_BLOCK_LEASED || block->state == KVW_BLOCK_DRAINING ||
		    (block->state == KVW_BLOCK_PENDING && block->writer == FAKE_SESSION))
			set_state(fake, (int32_t)i, KVW_BLOCK_FREE);
	}
}

void fake_books_free(struct fake_daemon *fake)
{
	free(fake->books.block);
	free(fake->books.holds);
	memset(&fake->books, 0, sizeof(fake->books));
}

/* ------------------------------------------------------------------ for tests */

int32_t fake_add_foreign(struct fake_daemon *fake, const uint8_t *hash, bool complete)
{
	int32_t id;

	pthread_mutex_lock(&fake->lock);
	id = take_free(fake);
	fake->books.block[id].generation++;
	fake->books.block[id].writer = FAKE_FOREIGN_SESSION;
	memset(fake->books.block[id].hash, 0, KVW_MAX_HASH_BYTES);
	memcpy(fake->books.block[id].hash, hash, fake->books.hash_bytes);
	set_state(fake, id, complete ? KVW_BLOCK_CACHED : KVW_BLOCK_PENDING);
	index_set(fake, id, true);
	pthread_mutex_unlock(&fake->lock);
	return id;
}

void fake_finish_foreign(struct fake_daemon *fake, int32_t id, bool complete)
{
	pthread_mutex_lock(&fake->lock);
	if (!complete)
		index_set(fake, id, false);
	set_state(fake, id, complete ? KVW_BLOCK_CACHED : KVW_BLOCK_ORPHAN);
	pthread_mutex_unlock(&fake->lock);
}

uint32_t fake_count(struct fake_daemon *fake, enum kvw_block_state state)
{
	uint32_t count = 0;
	uint32_t i;

	pthread_mutex_lock(&fake->lock);
	for (i = FAKE_FIRST_DATA; i < fake->books.blocks; i++)
		count += fake->books.block[i].state == (uint32_t)state;
	pthread_mutex_unlock(&fake->lock);
	return count;
}
