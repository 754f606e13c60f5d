/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's work by the raw protocol, at random but in order: what the daemon refuses is only what a full
 * pool, a lost writer or a used-up lease explains. All victims work on the same few chains, so that they
 * match, wait for and duplicate each other's blocks.
 */
#include <signal.h>
#include <string.h>

#include <kvpool/error.h>

#include "content.h"
#include "victim.h"

#define ROWS 8u
#define CHAINS 24u
#define MOST_BLOCKS 12u
/* Records that may be on their way before the victim waits: their arrays must not be overwritten. */
#define ASYNC_RECORDS 64u
/* Records that wait for a step keep a place of the engine's holds each. */
#define WAITING_RECORDS 8u

struct row {
	bool open;
	uint64_t hold;
	uint64_t chain;
	uint32_t length; /* references of the hold */
	uint32_t total;  /* blocks of the row: the rest is leased */
};

struct worker {
	struct kvt_raw *raw;
	uint64_t block_bytes;
	struct kvt_rng rng;
	struct row rows[ROWS];
	uint64_t step;    /* the last one given to a record */
	uint64_t reached; /* what the timeline says */
	uint32_t returns; /* cursor of the return area */
	uint32_t async;
	uint32_t waiting; /* records since every step was done */
};

static uint32_t pick(struct worker *worker, uint32_t bound)
{
	return (uint32_t)kvt_rng_below(&worker->rng, bound);
}

static void *table(const struct worker *worker, uint64_t area, uint32_t row, size_t entry_bytes)
{
	const struct kvt_raw *raw = worker->raw;

	return (uint8_t *)raw->memory[KVT_TABLES] + area + row * raw->params.row_blocks * entry_bytes;
}

static void end_all_steps(struct worker *worker)
{
	worker->reached = worker->step;
	worker->waiting = 0;
	kvt_step_done(worker->raw, 0, worker->reached);
	kvt_drain(worker->raw);
	worker->async = 0;
}

static void post(struct worker *worker, struct kvw_request request)
{
	if (++worker->waiting > WAITING_RECORDS)
		end_all_steps(worker);
	request.timeline = 0;
	/* 0 is reached at once; the last step perhaps never. */
	request.step = pick(worker, 2) ? worker->step : 0;
	kvt_raw_post(worker->raw, &request);
	if (++worker->async < ASYNC_RECORDS)
		return;
	kvt_drain(worker->raw);
	worker->async = 0;
}

static void return_blocks(struct worker *worker, const struct kvw_block_ref *blocks, uint32_t count)
{
	struct kvw_block_ref *area = table(worker, worker->raw->layout.returns, 0, 1);
	uint32_t first = worker->returns;
	uint32_t i;

	if (!count)
		return;
	for (i = 0; i < count; i++)
		area[worker->returns++ % KVW_RETURN_ENTRIES] = blocks[i];
	post(worker, (struct kvw_request){.type = KVW_REQUEST_RETURN, .first = first, .count = count});
}

/* The row's blocks [first .. first + count) as they would be presented. */
static void refs_of(const struct worker *worker, uint32_t row, uint32_t first, uint32_t count,
		    struct kvw_block_ref *out)
{
	const int32_t *ids = table(worker, worker->raw->layout.ids, row, sizeof(*ids));
	const uint64_t *generations =
		table(worker, worker->raw->layout.generations, row, sizeof(*generations));
	uint32_t i;

	for (i = 0; i < count; i++)
		out[i] = (struct kvw_block_ref){.id = ids[first + i], .generation = generations[first + i]};
}

/* -------------------------------------------------------------- operations on a row */

static void check_matched(const struct worker *worker, uint32_t at, const struct row *row)
{
	const struct kvw_answer *answers = kvt_answers(worker->raw, at);
	uint32_t i;

	for (i = 0; i < row->length; i++)
		if (!(answers[i].flags & KVW_ANSWER_COMING))
			assert_true(kvt_holds_block(worker->raw, worker->block_bytes, answers[i].id,
						    row->chain, i));
}

static void open_row(struct worker *worker, uint32_t at)
{
	struct row *row = &worker->rows[at];
	uint32_t count = 1 + pick(worker, MOST_BLOCKS);
	struct kvw_request request = {
		.type = KVW_REQUEST_OPEN,
		.row = at,
		.first = count,
		.count = count,
		.want = count + pick(worker, 4),
		.most = MOST_BLOCKS,
		.flags = pick(worker, 4) ? 0 : KVW_REQUEST_COMING,
	};
	struct kvw_completion done;

	*row = (struct row){.chain = 1 + pick(worker, CHAINS)};
	kvt_set_hashes(worker->raw, at, row->chain, worker->raw->params.row_blocks);
	done = kvt_raw_do(worker->raw, request);
	if (done.status == -KVP_ENOBLOCKS)
		return;
	assert_int_equal(done.status, 0);
	row->open = true;
	row->hold = done.hold;
	row->length = done.matched;
	row->total = done.matched + done.granted;
	kvt_accept(worker->raw, at, 0, row->total);
	check_matched(worker, at, row);
}

static void return_rest(struct worker *worker, uint32_t at)
{
	struct kvw_block_ref refs[16];
	struct row *row = &worker->rows[at];

	refs_of(worker, at, row->length, row->total - row->length, refs);
	return_blocks(worker, refs, row->total - row->length);
	row->total = row->length;
}

static void close_row(struct worker *worker, uint32_t at)
{
	struct row *row = &worker->rows[at];

	return_rest(worker, at);
	post(worker, (struct kvw_request){.type = KVW_REQUEST_RELEASE, .hold = row->hold});
	row->open = false;
}

/* What the hold refers to now; those of the blocks that nobody needed any more go back. */
static void take_published(struct worker *worker, uint32_t at, uint32_t published)
{
	struct row *row = &worker->rows[at];
	const struct kvw_answer *answers = kvt_answers(worker->raw, at);
	struct kvw_block_ref refs[16];
	struct kvw_block_ref unneeded[16];
	uint32_t n = 0;
	uint32_t i;

	refs_of(worker, at, row->length, published, refs);
	for (i = 0; i < published; i++)
		if (answers[row->length + i].flags & KVW_ANSWER_DUPLICATE)
			unneeded[n++] = refs[i];
	kvt_accept(worker->raw, at, row->length, published);
	row->length += published;
	return_blocks(worker, unneeded, n);
}

static void publish_some(struct worker *worker, uint32_t at)
{
	struct row *row = &worker->rows[at];
	const int32_t *ids = table(worker, worker->raw->layout.ids, at, sizeof(*ids));
	uint32_t count = row->total - row->length;
	struct kvw_completion done;
	uint32_t i;

	if (count > 1)
		count = 1 + pick(worker, count);
	for (i = row->length; i < row->length + count; i++)
		kvt_write_block(worker->raw, worker->block_bytes, ids[i], row->chain, i);
	done = kvt_publish(worker->raw, at, row->hold, row->length, count, 0,
			   pick(worker, 2) ? ++worker->step : 0);
	/* The writer of a block before it died. */
	assert_true(!done.status || done.status == -KVP_ELOST);
	take_published(worker, at, done.granted);
	if (done.status)
		close_row(worker, at);
}

static void extend_row(struct worker *worker, uint32_t at)
{
	struct row *row = &worker->rows[at];
	uint32_t count = 1 + pick(worker, 2);
	struct kvw_completion done;

	if (row->total + count > worker->raw->params.row_blocks)
		return;
	done = kvt_raw_do(worker->raw, (struct kvw_request){.type = KVW_REQUEST_EXTEND,
							    .row = at,
							    .first = row->total,
							    .count = count});
	if (done.status == -KVP_ENOBLOCKS)
		return;
	assert_int_equal(done.status, 0);
	kvt_accept(worker->raw, at, row->total, count);
	row->total += count;
}

static void truncate_row(struct worker *worker, uint32_t at)
{
	struct row *row = &worker->rows[at];

	if (row->length < 2)
		return;
	return_rest(worker, at);
	row->length = 1 + pick(worker, row->length - 1);
	row->total = row->length;
	post(worker,
	     (struct kvw_request){.type = KVW_REQUEST_TRUNCATE, .hold = row->hold, .first = row->length});
}

static void end_step(struct worker *worker)
{
	if (worker->reached < worker->step)
		worker->reached += 1 + pick(worker, (uint32_t)(worker->step - worker->reached));
	kvt_step_done(worker->raw, 0, worker->reached);
}

static void operate(struct worker *worker)
{
	uint32_t at = pick(worker, ROWS);

	if (!worker->rows[at].open) {
		open_row(worker, at);
		return;
	}
	switch (pick(worker, 8)) {
	case 0:
		extend_row(worker, at);
		break;
	case 1:
		truncate_row(worker, at);
		break;
	case 2:
	case 3:
		close_row(worker, at);
		break;
	case 4:
		end_step(worker);
		break;
	default:
		publish_some(worker, at);
	}
}

void kvt_victim_random(struct kvt_raw *raw, const struct kvt_victim_order *order)
{
	struct worker worker = {
		.raw = raw,
		.block_bytes = kvt_block_bytes(raw, ""),
		.rng = {.state = order->seed},
	};
	uint64_t ops;

	for (ops = 0; !order->ops || ops < order->ops; ops++)
		operate(&worker);
	raise(SIGKILL);
}
