/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grouped attention, cut into work that threads share:
 *
 *	units	(a few query rows, KV head, some heads of its group): the rows that share converted keys
 *	runs	the rows of a unit that belong to one sequence, mostly all of them
 *	splits	of the run's keys, in pieces whose size follows from the sequence's length or the selection's
 *		width alone: 1024 keys, 512 selected ones, more only where that would make over 64 pieces
 *	tiles	of 64 keys: gqa_loops.c
 *
 * Up to four units of the same rows, KV heads side by side, make a band: they take turns at every tile, so
 * that paged memory is passed over once and, where the heads of a token lie in a row, in its own order. A KV
 * head a pass would read 256 bytes of each KiB four times over, with as many more TLB misses. A band is only
 * an order of work: its units share no number, so whether there is one may depend on the number of threads.
 *
 * One thread goes over units and splits in order. Several take (band, split) pairs, keep each result in
 * scratch, and then merge those of a unit in the order of its splits: the same operations on the same
 * numbers, so the bits do not depend on the number of threads, nor on other sequences. Scratch is bounded:
 * where it cannot hold all results, units go in rounds.
 */
#include "gqa_call.h"

#include "../internal.h"
#include "gqa_keys.h"
#include "gqa_tile.h"
#include "threads.h"

#include <math.h>
#include <string.h>

#define LOG2_E 1.44269504088896341
#define LN_2 0.693147180559945309

#define SPLIT_KEYS 1024    /* a multiple of KVK_GQA_KEYS */
#define SPLIT_SELECTED 512 /* four of MSA's blocks */
#define MAX_SPLITS 64
#define MAX_QUERIES 4      /* rows of a unit: a draft's */
#define MAX_BAND 4         /* scratch holds results of so many units, each with MAX_SPLITS */
#define BANDS_PER_THREAD 4 /* at least, so that threads end at about the same time */

KVK_LEVEL_TABLES(kvk_gqa_ops, kvk_gqa);

/* How a call is cut into units. */
struct cut {
	const struct kvk_gqa_call *call;
	const struct kvk_gqa_ops *ops;
	int32_t group;     /* heads of a KV head */
	int32_t queries;   /* rows of a unit */
	int32_t heads;     /* heads of a unit */
	int32_t pieces;    /* units that share a KV head's group */
	int32_t tile_rows; /* of a unit */
	int32_t width;
	int64_t units;
	int32_t band;   /* units that go over their keys together: KV heads of the same rows */
	int32_t splits; /* the most of any unit */
	int64_t first;  /* unit of the round */
};

struct work {
	struct kvk_gqa_tile tile;
	float out[2][KVK_GQA_ELEMENTS] KVK_GQA_ALIGNED;
	float sum[2][KVK_GQA_ROWS * KVK_GQA_MAX_LANES] KVK_GQA_ALIGNED;
	float max[2][KVK_GQA_ROWS];
};

/* Consecutive rows of a unit of one sequence, or of none. */
struct run {
	int32_t sequence; /* -1: padding */
	int32_t row, rows;
	int32_t first_row, count; /* of the sequence */
	int32_t kv_head, head, heads;
};

static int32_t divide_up(int64_t a, int64_t b)
{
	return (int32_t)((a + b - 1) / b);
}

static int32_t smaller(int64_t a, int64_t b)
{
	return (int32_t)(a < b ? a : b);
}

/* s_q 0: what cu_q says, which the size of scratch must not depend on. */
static int32_t most_queries(int32_t s_q)
{
	return s_q == 0 ? MAX_QUERIES : smaller(s_q, MAX_QUERIES);
}

static void cut_call(const struct kvk_gqa_call *call, struct cut *cut)
{
	const int32_t width = divide_up(call->head_dim, KVK_GQA_WIDTH_STEP) * KVK_GQA_WIDTH_STEP;
	const int32_t room = smaller(KVK_GQA_ELEMENTS / width, KVK_GQA_ROWS);
	const int32_t group = call->heads / call->kv_heads;

	*cut = (struct cut){.call = call, .group = group, .width = width, .queries = 1};
	cut->pieces = divide_up(group, room);
	cut->heads = divide_up(group, cut->pieces);
	if (!call->sparse && cut->pieces == 1)
		cut->queries = smaller(room / group, most_queries(call->s_q));
	cut->tile_rows = cut->queries * cut->heads;
	cut->units = (int64_t)divide_up(call->rows, cut->queries) * call->kv_heads * cut->pieces;
}

static size_t slot_bytes(const struct cut *cut)
{
	/* Behind the last maximum there is room for a vector. */
	const size_t floats =
		(size_t)cut->tile_rows * ((size_t)cut->width + KVK_GQA_MAX_LANES + 1) + KVK_GQA_MAX_LANES;

	return (floats * sizeof(float) + KVK_SCRATCH_ALIGN - 1) / KVK_SCRATCH_ALIGN * KVK_SCRATCH_ALIGN;
}

/* Results of (unit, split) pairs that scratch holds: enough to keep threads busy, and one unit's at least. */
static int64_t slot_count(const struct cut *cut)
{
	const uint32_t threads = kvk_thread_count(cut->call->threads);
	const int64_t enough = 256 + 16 * (int64_t)threads;

	if (threads == 1)
		return 0;
	return cut->units < enough / MAX_SPLITS ? cut->units * MAX_SPLITS : enough;
}

size_t kvk_gqa_call_scratch(const struct kvk_gqa_call *call)
{
	struct cut cut;

	cut_call(call, &cut);
	return slot_bytes(&cut) * (size_t)slot_count(&cut);
}

/* Items (positions, or entries of the selection) of each split of a sequence. */
static int32_t split_items(const struct kvk_gqa_call *call, int32_t len)
{
	int32_t items = len;
	int32_t least = SPLIT_KEYS;

	if (call->sparse) {
		items = call->topk;
		least = call->block_tokens < SPLIT_SELECTED ? SPLIT_SELECTED / call->block_tokens : 1;
	}
	return least * (items > 0 ? divide_up(items, (int64_t)least * MAX_SPLITS) : 1);
}

static int32_t split_count(const struct kvk_gqa_call *call, int32_t len, int32_t visible)
{
	const int32_t items = call->sparse ? call->topk : visible;

	return divide_up(items, split_items(call, len));
}

static int32_t most_splits(const struct kvk_gqa_call *call)
{
	int32_t most = 1;

	for (int32_t r = 0; r < call->batch; r++)
		if (call->lens[r] > 0) {
			const int32_t splits = split_count(call, call->lens[r], call->lens[r]);

			most = splits > most ? splits : most;
		}
	return most;
}

/* The sequence that `row` is of, or -1; *end is where its rows, or those of no sequence, end. */
static int32_t sequence_of(const struct kvk_gqa_call *call, int32_t row, int32_t *end)
{
	int32_t low = 0;
	int32_t high = call->batch; /* the last sequence that begins at or before row is in [low - 1, high) */

	while (low < high) {
		const int32_t middle = low + (high - low) / 2;

		if (kvk_first_row(call->cu_q, call->s_q, middle) <= row)
			low = middle + 1;
		else
			high = middle;
	}
	*end = low < call->batch ? kvk_first_row(call->cu_q, call->s_q, low) : call->rows;
	if (low == 0)
		return -1;
	if (row >= kvk_first_row(call->cu_q, call->s_q, low))
		return -1;
	*end = kvk_first_row(call->cu_q, call->s_q, low);
	return low - 1;
}

/* The run that begins at `row`, which is below `end`, in unit `unit`. */
static void find_run(const struct cut *cut, int64_t unit, int32_t row, int32_t end, struct run *run)
{
	const struct kvk_gqa_call *call = cut->call;
	const int32_t piece = (int32_t)(unit % cut->pieces);
	int32_t sequence_end;

	run->row = row;
	run->sequence = sequence_of(call, row, &sequence_end);
	run->rows = smaller(sequence_end, end) - row;
	run->first_row = run->sequence < 0 ? row : kvk_first_row(call->cu_q, call->s_q, run->sequence);
	run->count = sequence_end - run->first_row;
	run->kv_head = (int32_t)(unit / cut->pieces % call->kv_heads);
	run->head = piece * cut->heads;
	run->heads = smaller(cut->group - run->head, cut->heads);
	run->head += run->kv_head * cut->group;
}

/* Keys that row `i` of the run sees. */
static int32_t visible_of(const struct kvk_gqa_call *call, const struct run *run, int32_t i)
{
	if (run->sequence < 0)
		return 0;
	return kvk_visible(call->lens[run->sequence], run->count, run->row + i - run->first_row,
			   call->causal);
}

static int32_t run_splits(const struct kvk_gqa_call *call, const struct run *run)
{
	const int32_t visible = visible_of(call, run, run->rows - 1);

	return visible ? split_count(call, call->lens[run->sequence], visible) : 0;
}

static void shape_tile(const struct cut *cut, const struct run *run, struct kvk_gqa_tile *tile)
{
	const struct kvk_gqa_call *call = cut->call;

	tile->rows = run->rows * run->heads;
	tile->head = 0;
	tile->heads = 1;
	tile->width = cut->width;
	tile->dim = call->head_dim;
	tile->dtype = call->kv_dtype;
	tile->scale_log2 = (float)(call->scale * LOG2_E);
}

/* The queries of the KV head in turn; `run` is of the band's first one. */
static void load_queries(const struct cut *cut, const struct run *run, struct kvk_gqa_tile *tile)
{
	const struct kvk_gqa_call *call = cut->call;
	const int64_t bytes = (int64_t)kvk_dtype_bytes(call->q_dtype);

	for (int32_t r = 0; r < tile->rows; r++) {
		const int64_t row = run->row + r / run->heads;
		const int64_t head = run->head + tile->head * cut->group + r % run->heads;

		cut->ops->load_query(
			tile, r, call->q + (row * call->q_stride_row + head * call->q_stride_head) * bytes,
			call->q_dtype);
	}
}

/* Where the pieces of a row lie behind the first head's part, all heads of the band together. */
static void list_pieces(struct kvk_gqa_tile *tile)
{
	const int bytes = tile->dim * (int)kvk_dtype_bytes(tile->dtype);
	const int pieces = divide_up(bytes, KVK_GQA_PIECE);
	const int count = tile->heads * pieces;

	tile->row_pieces = count;
	for (int i = 0; i < count; i++)
		for (int which = 0; which < 2; which++)
			tile->piece_offset[which][i] =
				i / pieces * tile->head_bytes[which] + i % pieces * KVK_GQA_PIECE;
}

static void begin_tile(const struct cut *cut, const struct run *run, struct kvk_gqa_tile *tile)
{
	const struct kvk_gqa_call *call = cut->call;
	const int64_t bytes = (int64_t)kvk_dtype_bytes(call->kv_dtype);

	shape_tile(cut, run, tile);
	tile->heads = cut->band;
	tile->head_bytes[0] = call->k_stride_head * bytes;
	tile->head_bytes[1] = call->v_stride_head * bytes;
	list_pieces(tile);
	for (tile->head = 0; tile->head < tile->heads; tile->head++)
		load_queries(cut, run, tile);
}

static void clear_state(const struct kvk_gqa_tile *tile, const struct kvk_gqa_state *state)
{
	memset(state->out, 0, sizeof(*state->out) * (size_t)tile->rows * (size_t)tile->width);
	memset(state->sum, 0, sizeof(*state->sum) * (size_t)tile->rows * KVK_GQA_MAX_LANES);
	for (int r = 0; r < tile->rows; r++)
		state->max[r] = KVK_GQA_START_MAX;
}

/* What each row of the run sees of a tile whose first key is at `position`. */
static void limit_keys(const struct kvk_gqa_call *call, const struct run *run, int32_t position,
		       struct kvk_gqa_keys *keys)
{
	for (int32_t i = 0; i < run->rows; i++) {
		const int32_t left = visible_of(call, run, i) - position;
		const int32_t seen = left < 0 ? 0 : smaller(left, keys->count);

		keys->mixed |= seen < keys->count;
		for (int32_t h = 0; h < run->heads; h++)
			keys->seen[i * run->heads + h] = seen;
	}
}

static void begin_cursor(const struct kvk_gqa_call *call, const struct run *run,
			 struct kvk_gqa_cursor *cursor)
{
	const int64_t bytes = (int64_t)kvk_dtype_bytes(call->kv_dtype);

	*cursor = (struct kvk_gqa_cursor){.call = call,
					  .k = call->k + run->kv_head * call->k_stride_head * bytes,
					  .v = call->v + run->kv_head * call->v_stride_head * bytes,
					  .table = call->block_table + run->sequence * call->table_stride,
					  .visible = visible_of(call, run, run->rows - 1)};
	if (call->sparse)
		cursor->ids = call->selected + run->kv_head * call->selected_stride_head +
			      run->row * call->selected_stride_row;
}

/* All KV heads of the band, one after the other, go over a tile of keys; `now` ends up at the last one's. */
static void attend_band(const struct cut *cut, struct kvk_gqa_tile *tile, const struct kvk_gqa_state *states,
			struct kvk_gqa_keys *now, const struct kvk_gqa_keys *next)
{
	for (tile->head = 0; tile->head < tile->heads; tile->head++) {
		for (int n = 0; tile->head && n < now->count; n++) {
			now->row[2 * n] += tile->head_bytes[0];
			now->row[2 * n + 1] += tile->head_bytes[1];
		}
		cut->ops->attend(tile, &states[tile->head], now, next);
	}
}

/*
 * One split of a run, and of the same run of the band's other units. The keys behind it are asked for in
 * time: the next split most often comes next.
 */
static void attend_split(const struct cut *cut, const struct run *run, int32_t split,
			 struct kvk_gqa_tile *tile, const struct kvk_gqa_state *states)
{
	const struct kvk_gqa_call *call = cut->call;
	struct kvk_gqa_cursor cursor;
	int32_t position;
	int now = 0;

	begin_cursor(call, run, &cursor);
	kvk_gqa_cursor_begin(&cursor, split, split_items(call, call->lens[run->sequence]));
	position = cursor.position;
	for (int32_t i = 0; i < cut->band; i++)
		clear_state(tile, &states[i]);
	kvk_gqa_cursor_next(&cursor, &tile->keys[0]);
	for (int last = 0; tile->keys[now].count && !last; now = !now) {
		if (run->rows > 1)
			limit_keys(call, run, position, &tile->keys[now]);
		position += tile->keys[now].count;
		kvk_gqa_cursor_next(&cursor, &tile->keys[!now]);
		last = !tile->keys[!now].count;
		if (last) {
			kvk_gqa_cursor_pass(&cursor);
			kvk_gqa_cursor_next(&cursor, &tile->keys[!now]);
		}
		attend_band(cut, tile, states, &tile->keys[now], &tile->keys[!now]);
	}
}

/* Of all lanes; those that a level doesn't have hold 0. */
static float total_sum(const struct kvk_gqa_state *state, int row)
{
	float sum = 0;

	for (int i = 0; i < KVK_GQA_MAX_LANES; i++)
		sum += state->sum[row * KVK_GQA_MAX_LANES + i];
	return sum;
}

static void store_run(const struct cut *cut, const struct run *run, const struct kvk_gqa_tile *tile,
		      const struct kvk_gqa_state *state)
{
	const struct kvk_gqa_call *call = cut->call;
	const int64_t bytes = (int64_t)kvk_dtype_bytes(call->out_dtype);

	for (int32_t r = 0; r < tile->rows; r++) {
		const int64_t row = run->row + r / run->heads;
		const int64_t head = run->head + r % run->heads;
		const float sum = total_sum(state, r);

		cut->ops->store(tile, state, r, sum,
				call->out +
					(row * call->out_stride_row + head * call->out_stride_head) * bytes,
				call->out_dtype);
		if (call->lse)
			call->lse[row * call->lse_stride_row + head] =
				sum == 0 ? INFINITY : (float)(log((double)sum) + state->max[r] * LN_2);
	}
}

/* Parts of the working memory, one for each unit of the band. */
static void work_states(const struct cut *cut, struct work *work, int which, struct kvk_gqa_state *states)
{
	for (int32_t i = 0; i < cut->band; i++) {
		const int32_t row = i * cut->tile_rows;

		states[i] = (struct kvk_gqa_state){.out = work->out[which] + row * cut->width,
						   .sum = work->sum[which] + row * KVK_GQA_MAX_LANES,
						   .max = work->max[which] + row};
	}
}

/* A whole run on one thread, and the same run of the band's other units. */
static void attend_run(const struct cut *cut, int64_t unit, struct run *run, int32_t end, struct work *work)
{
	const int32_t splits = run_splits(cut->call, run);
	struct kvk_gqa_state total[MAX_BAND], more[MAX_BAND];

	work_states(cut, work, 0, total);
	work_states(cut, work, 1, more);
	begin_tile(cut, run, &work->tile);
	for (int32_t i = 0; !splits && i < cut->band; i++)
		clear_state(&work->tile, &total[i]);
	for (int32_t split = 0; split < splits; split++) {
		attend_split(cut, run, split, &work->tile, split ? more : total);
		for (int32_t i = 0; split && i < cut->band; i++)
			cut->ops->merge(&work->tile, &total[i], &more[i]);
	}
	for (int32_t i = 0; i < cut->band; i++) {
		find_run(cut, unit + i, run->row, end, run);
		store_run(cut, run, &work->tile, &total[i]);
	}
}

/* Rows [*row, *end) of a unit. */
static void unit_rows(const struct cut *cut, int64_t unit, int32_t *row, int32_t *end)
{
	const int64_t first = unit / cut->pieces / cut->call->kv_heads * cut->queries;

	*row = (int32_t)first;
	*end = smaller(first + cut->queries, cut->call->rows);
}

static void attend_units(const struct cut *cut)
{
	struct work work;
	struct run run;
	int32_t row, end;

	for (int64_t unit = 0; unit < cut->units; unit += cut->band)
		for (unit_rows(cut, unit, &row, &end); row < end; row += run.rows) {
			find_run(cut, unit, row, end, &run);
			attend_run(cut, unit, &run, end, &work);
		}
}

/*
 * Where in scratch the result of a split of a run is. The runs of a unit share a slot: values, sums,
 * maxima, all of them row by row.
 */
static struct kvk_gqa_state slot_state(const struct cut *cut, int64_t unit, int32_t split,
				       const struct run *run)
{
	const int64_t slot = (unit - cut->first) * cut->splits + split;
	float *out = (float *)(void *)(cut->call->scratch + slot * (int64_t)slot_bytes(cut));
	float *sum = out + (int64_t)cut->tile_rows * cut->width;
	float *max = sum + (int64_t)cut->tile_rows * KVK_GQA_MAX_LANES;
	int32_t first, end;
	int64_t skip;

	unit_rows(cut, unit, &first, &end);
	skip = (int64_t)(run->row - first) * cut->heads;
	return (struct kvk_gqa_state){
		.out = out + skip * cut->width, .sum = sum + skip * KVK_GQA_MAX_LANES, .max = max + skip};
}

static void visit_split(void *arg, uint32_t thread, int64_t item)
{
	const struct cut *cut = arg;
	const int64_t unit = cut->first + item / cut->splits * cut->band;
	const int32_t split = (int32_t)(item % cut->splits);
	struct kvk_gqa_state states[MAX_BAND];
	struct kvk_gqa_tile tile;
	struct run run;
	int32_t row, end;

	(void)thread;
	for (unit_rows(cut, unit, &row, &end); row < end; row += run.rows) {
		find_run(cut, unit, row, end, &run);
		if (split >= run_splits(cut->call, &run))
			continue;
		for (int32_t i = 0; i < cut->band; i++)
			states[i] = slot_state(cut, unit + i, split, &run);
		begin_tile(cut, &run, &tile);
		attend_split(cut, &run, split, &tile, states);
	}
}

static void merge_run(const struct cut *cut, int64_t unit, const struct run *run, struct kvk_gqa_tile *tile)
{
	const struct kvk_gqa_state total = slot_state(cut, unit, 0, run);
	const int32_t splits = run_splits(cut->call, run);

	shape_tile(cut, run, tile);
	if (!splits)
		clear_state(tile, &total);
	for (int32_t split = 1; split < splits; split++) {
		const struct kvk_gqa_state more = slot_state(cut, unit, split, run);

		cut->ops->merge(tile, &total, &more);
	}
	store_run(cut, run, tile, &total);
}

static void visit_unit(void *arg, uint32_t thread, int64_t item)
{
	const struct cut *cut = arg;
	const int64_t unit = cut->first + item;
	struct kvk_gqa_tile tile;
	struct run run;
	int32_t row, end;

	(void)thread;
	for (unit_rows(cut, unit, &row, &end); row < end; row += run.rows) {
		find_run(cut, unit, row, end, &run);
		merge_run(cut, unit, &run, &tile);
	}
}

/*
 * The most KV heads that the working memory of one tile holds, of those that divide their number. One where
 * selections differ from head to head, or where a head's tokens lie nearer than the next head.
 */
static int32_t find_band(const struct cut *cut)
{
	const struct kvk_gqa_call *call = cut->call;
	const int64_t threads = kvk_thread_count(call->threads);
	int32_t band =
		smaller(KVK_GQA_ELEMENTS / (cut->tile_rows * cut->width), KVK_GQA_ROWS / cut->tile_rows);

	band = smaller(band, MAX_BAND);
	if (call->sparse || cut->pieces > 1 || call->k_stride_head > call->k_stride_token)
		return 1;
	while (band > 1 && call->kv_heads % band)
		band--;
	if (threads > 1 && cut->units / band * cut->splits < BANDS_PER_THREAD * threads)
		return 1;
	return band;
}

/* Rounds of as many units as scratch holds: all their splits, then all their merges. */
static void share_units(struct cut *cut)
{
	const struct kvk_threads *threads = cut->call->threads;
	const int64_t at_once = slot_count(cut) / cut->splits / cut->band * cut->band;

	for (cut->first = 0; cut->first < cut->units; cut->first += at_once) {
		const int64_t left = cut->units - cut->first;
		const int64_t units = left < at_once ? left : at_once;

		kvk_each(threads, units / cut->band * cut->splits, visit_split, cut);
		kvk_each(threads, units, visit_unit, cut);
	}
}

void kvk_gqa_call_run(const struct kvk_gqa_call *call, enum kvk_level level)
{
	struct cut cut;

	cut_call(call, &cut);
	cut.ops = KVK_LEVEL_TABLE(kvk_gqa, level);
	cut.splits = most_splits(call);
	cut.band = find_band(&cut);
	if (kvk_thread_count(call->threads) == 1)
		attend_units(&cut);
	else
		share_units(&cut);
}
