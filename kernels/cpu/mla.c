/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame of MLA decode. Query rows that share their keys (the heads of a query, and the queries of a
 * sequence) form units of up to 128 rows; a unit's keys are cut into splits of KVK_MLA_SPLIT, counted from
 * the first key.
 *
 *	for each window of work items (unit, split) in order:
 *		in parallel, for each item:	for each tile of 128 keys: attend, into the item's slot
 *		in parallel, for rows of a unit:	merge the slots in order; write what is complete
 *
 * A window has a few items for each thread, which bounds the slots whatever the lengths. What a unit that
 * goes on in the next window has so far is carried over. Every row is summed in the order of its splits, so
 * windows and threads leave no trace in its bits, and neither do the other rows.
 *
 * Roofline: see mla_loops.c; a slot's 2 KiB a row are written and read once per 512 keys, 2 % of its
 * multiply-adds.
 */
#include "mla.h"

#include "mla_few.h"
#include "threads.h"

#include <math.h>
#include <string.h>

#define LOG2_E 1.44269504088896341
#define LN_2 0.693147180559945309
#define SLOTS_PER_THREAD 4
#define MERGE_ROWS 16 /* rows that one thread merges at a time */

KVK_LEVEL_TABLES(kvk_mla_ops, kvk_mla);
KVK_LEVEL_TABLES(kvk_mla_row_ops, kvk_mla_rows);
KVK_LEVEL_TABLES(kvk_mla_few_ops, kvk_mla_few);

/* Results of a unit's rows, over some of its keys. */
struct slot {
	float *out; /* [rows][512] */
	float *max, *sum;
};

/* One thread's working memory. */
struct worker {
	int64_t unit; /* whose queries are packed; -1: none */
	struct kvk_mla_keys keys[2];
	const void *row[KVK_MLA_TILE_ROWS];
	int32_t sees[KVK_MLA_TILE_ROWS];    /* keys that a row sees */
	int32_t visible[KVK_MLA_TILE_ROWS]; /* of the split at hand */
	float *q, *keys_f32, *score, *keep;
};

struct item {
	int64_t unit;
	int32_t split;
	int32_t splits; /* of the unit */
};

struct frame {
	const struct kvk_mla_job *job;
	struct kvk_mla_ops ops;
	struct kvk_mla_row_ops row_ops;
	int32_t tiles; /* units of the same queries */
	int32_t rows;  /* in a unit, the last of `tiles` may have fewer */
	bool wide;     /* see struct kvk_mla_rows */
	int64_t units;
	int32_t slots;
	int32_t items; /* in this window */
	int32_t threads;
	unsigned window;
	char *workers, *slot_memory;
	size_t worker_bytes, slot_bytes;
	struct item *item;
};

/* A unit's place in the call. */
struct unit {
	int32_t b;
	int32_t query;     /* first */
	int64_t first_row; /* among the rows of the queries */
	int32_t rows;
};

static size_t round_up(size_t bytes)
{
	return (bytes + KVK_SCRATCH_ALIGN - 1) / KVK_SCRATCH_ALIGN * KVK_SCRATCH_ALIGN;
}

/* Whether the heads fill whole groups of the wide form, however many queries there are. */
static bool is_wide(int32_t heads)
{
	return heads % KVK_MLA_WIDE == 0;
}

/* Rows of a unit: as even a share of all rows as whole groups allow. */
static int32_t unit_rows(int64_t rows, int32_t pad, int32_t *tiles)
{
	const int64_t count = (rows + KVK_MLA_TILE_ROWS - 1) / KVK_MLA_TILE_ROWS;
	const int64_t share = (rows + count - 1) / count;
	const int64_t padded = (share + pad - 1) / pad * pad;

	*tiles = (int32_t)((rows + padded - 1) / padded);
	return (int32_t)padded;
}

static void set_sizes(struct frame *f, int32_t queries, int32_t heads, const struct kvk_threads *threads)
{
	f->wide = is_wide(heads);
	f->rows = unit_rows((int64_t)queries * heads, f->wide ? KVK_MLA_WIDE : KVK_MLA_PAD, &f->tiles);
	f->threads = (int32_t)kvk_thread_count(threads);
	f->slots = f->threads * SLOTS_PER_THREAD;
	f->worker_bytes = round_up(sizeof(struct worker)) +
			  sizeof(float) * ((size_t)f->rows * (KVK_MLA_WIDTH + KVK_MLA_SCORE_KEYS + 1) +
					   (size_t)KVK_MLA_PANELS * KVK_MLA_PANEL_STRIDE);
	f->slot_bytes = sizeof(float) * (size_t)f->rows * (KVK_MLA_LATENT + 2);
}

/* Slots; two more of them carry results from window to window. */
static size_t all_bytes(const struct frame *f)
{
	return (size_t)f->threads * f->worker_bytes + ((size_t)f->slots + 2) * f->slot_bytes +
	       round_up((size_t)f->slots * sizeof(struct item));
}

size_t kvk_mla_scratch(int32_t queries, int32_t heads, const struct kvk_threads *threads)
{
	struct frame f;

	set_sizes(&f, queries, heads, threads);
	return all_bytes(&f);
}

static struct worker *worker_at(const struct frame *f, uint32_t thread)
{
	return (struct worker *)(void *)(f->workers + thread * f->worker_bytes);
}

static struct slot slot_at(const struct frame *f, int64_t index)
{
	float *memory = (float *)(void *)(f->slot_memory + (size_t)index * f->slot_bytes);

	return (struct slot){.out = memory,
			     .max = memory + (int64_t)f->rows * KVK_MLA_LATENT,
			     .sum = memory + (int64_t)f->rows * (KVK_MLA_LATENT + 1)};
}

static struct slot carry_at(const struct frame *f, unsigned window)
{
	return slot_at(f, f->slots + (int64_t)(window % 2));
}

static void lay_out_scratch(struct frame *f)
{
	char *memory = f->job->scratch;

	f->workers = memory;
	memory += (size_t)f->threads * f->worker_bytes;
	f->slot_memory = memory;
	memory += ((size_t)f->slots + 2) * f->slot_bytes;
	f->item = (struct item *)(void *)memory;
	for (int32_t i = 0; i < f->threads; i++) {
		struct worker *worker = worker_at(f, (uint32_t)i);
		float *arrays = (float *)(void *)((char *)worker + round_up(sizeof(*worker)));

		worker->unit = -1;
		worker->keys_f32 = arrays;
		worker->q = worker->keys_f32 + KVK_MLA_PANELS * KVK_MLA_PANEL_STRIDE;
		worker->score = worker->q + (int64_t)f->rows * KVK_MLA_WIDTH;
		worker->keep = worker->score + (int64_t)f->rows * KVK_MLA_SCORE_KEYS;
	}
}

static struct unit unit_at(const struct frame *f, int64_t index)
{
	const struct kvk_mla_job *job = f->job;
	const int32_t groups = job->s_q / job->source.queries;
	const int64_t rows = (int64_t)job->source.queries * job->heads;
	const int64_t queries = index / f->tiles; /* which group of queries */
	const int64_t first_row = index % f->tiles * f->rows;
	const int64_t left = rows - first_row;

	return (struct unit){.b = (int32_t)(queries / groups),
			     .query = (int32_t)(queries % groups) * job->source.queries,
			     .first_row = first_row,
			     .rows = (int32_t)(left < f->rows ? left : f->rows)};
}

static int32_t query_of(const struct frame *f, const struct unit *unit, int32_t row)
{
	return unit->query + (int32_t)((unit->first_row + row) / f->job->heads);
}

static int32_t head_of(const struct frame *f, const struct unit *unit, int32_t row)
{
	return (int32_t)((unit->first_row + row) % f->job->heads);
}

/* Keys of a unit: its last row sees the most. */
static int32_t unit_keys(const struct frame *f, const struct unit *unit)
{
	const struct kvk_mla_source *source = &f->job->source;

	return source->length(source->op, unit->b, query_of(f, unit, unit->rows - 1));
}

static void take_unit(const struct frame *f, struct worker *worker, int64_t index, const struct unit *unit)
{
	const struct kvk_mla_job *job = f->job;
	const int64_t bytes = (int64_t)kvk_dtype_bytes(job->q_dtype);

	for (int32_t r = 0; r < unit->rows; r++) {
		const int32_t i = query_of(f, unit, r);

		worker->row[r] =
			(const char *)job->q + (unit->b * job->q_stride_batch + i * job->q_stride_query +
						head_of(f, unit, r) * job->q_stride_head) *
						       bytes;
		worker->sees[r] = job->source.length(job->source.op, unit->b, i);
	}
	f->row_ops.pack_queries(worker->q, worker->row, unit->rows, f->wide, job->q_dtype);
	worker->unit = index;
}

/* What the rows see of the keys from `first` on; NULL when all see `keys`. */
static const int32_t *visible_keys(struct worker *worker, int32_t rows, int32_t first, int32_t keys)
{
	if (worker->sees[0] - first >= keys)
		return NULL;
	for (int32_t r = 0; r < rows; r++)
		worker->visible[r] = worker->sees[r] > first ? worker->sees[r] - first : 0;
	return worker->visible;
}

static void gather(const struct frame *f, const struct unit *unit, int32_t first, int32_t end,
		   struct kvk_mla_keys *keys)
{
	const struct kvk_mla_source *source = &f->job->source;
	const int32_t left = end - first;

	keys->count = 0;
	if (left > 0)
		source->gather(source->op, unit->b, unit->query, first,
			       left < KVK_MLA_TILE_KEYS ? left : KVK_MLA_TILE_KEYS, keys);
}

/* Keys [first, end) of all keys of the unit, tile by tile. */
static void attend(const struct frame *f, struct worker *worker, const struct unit *unit,
		   struct kvk_mla_rows *rows, int32_t first, int32_t end, int32_t all)
{
	int32_t done = 0;

	gather(f, unit, first, end, &worker->keys[0]);
	for (int32_t at = first; at < end; at += KVK_MLA_TILE_KEYS) {
		const int32_t next = at + KVK_MLA_TILE_KEYS;

		if (next < end)
			gather(f, unit, next, end, &worker->keys[1]);
		else /* where this thread is likely to go on */
			gather(f, unit, first + f->threads * KVK_MLA_SPLIT, all, &worker->keys[1]);
		if (worker->keys[0].count > 0)
			f->ops.attend(rows, done, &worker->keys[0], &worker->keys[1], f->job->kv_dtype);
		done += worker->keys[0].count;
		worker->keys[0] = worker->keys[1];
	}
}

static void visit_item(void *arg, uint32_t thread, int64_t index)
{
	const struct frame *f = arg;
	const struct item *item = &f->item[index];
	const struct unit unit = unit_at(f, item->unit);
	const struct slot slot = slot_at(f, index);
	struct worker *worker = worker_at(f, thread);
	const int32_t all = unit_keys(f, &unit);
	const int32_t first = item->split * KVK_MLA_SPLIT;
	const int32_t end = all - first > KVK_MLA_SPLIT ? first + KVK_MLA_SPLIT : all;
	struct kvk_mla_rows rows = {.count = unit.rows,
				    .wide = f->wide,
				    .scale_log2 = (float)(f->job->scale * LOG2_E),
				    .q = worker->q,
				    .keys = worker->keys_f32,
				    .score = worker->score,
				    .keep = worker->keep,
				    .out = slot.out,
				    .max = slot.max,
				    .sum = slot.sum};

	for (int32_t r = 0; r < f->rows; r++) {
		slot.max[r] = KVK_MLA_MIN_MAX;
		slot.sum[r] = 0;
	}
	if (all == 0)
		return;
	if (worker->unit != item->unit)
		take_unit(f, worker, item->unit, &unit);
	rows.visible = visible_keys(worker, unit.rows, first, end - first);
	attend(f, worker, &unit, &rows, first, end, all);
}

/* Writes row r of a unit, all of whose keys are in `slot`. */
static void write_row(const struct frame *f, const struct unit *unit, const struct slot *slot, int32_t r)
{
	const struct kvk_mla_job *job = f->job;
	const int32_t h = head_of(f, unit, r);
	const int32_t i = query_of(f, unit, r);
	const int64_t offset =
		unit->b * job->out_stride_batch + i * job->out_stride_query + h * job->out_stride_head;
	void *out = (char *)job->out + offset * (int64_t)kvk_dtype_bytes(job->out_dtype);
	const double sum = (double)slot->sum[r];
	double lse = INFINITY;
	double factor = 0;

	if (sum != 0) {
		lse = log(sum) + slot->max[r] * LN_2;
		factor = 1 / sum;
		if (job->sink)
			factor /= 1 + exp((double)job->sink[h] - lse);
	}
	f->row_ops.store_row(out, job->out_dtype, sum != 0 ? slot->out + (int64_t)r * KVK_MLA_LATENT : NULL,
			     (float)factor);
	if (job->lse)
		job->lse[unit->b * job->lse_stride_batch + h * job->lse_stride_head + i] = (float)lse;
}

/* Adds slots [first, end) of the window to row r of `to`. */
static void merge_row(const struct frame *f, const struct slot *to, int64_t first, int64_t end, int32_t r)
{
	while (first < end) {
		const struct slot from = slot_at(f, first);
		const int64_t stride = (int64_t)(f->slot_bytes / sizeof(float));
		const int count = end - first < KVK_MLA_FOLD ? (int)(end - first) : KVK_MLA_FOLD;
		const struct kvk_mla_fold fold = {.partials = count,
						  .out_stride = stride,
						  .stat_stride = stride,
						  .out = from.out + (int64_t)r * KVK_MLA_LATENT,
						  .max = from.max + r,
						  .sum = from.sum + r,
						  .acc_out = to->out + (int64_t)r * KVK_MLA_LATENT,
						  .acc_max = to->max + r,
						  .acc_sum = to->sum + r};

		f->row_ops.fold(&fold);
		first += count;
	}
}

static void copy_row(const struct slot *to, const struct slot *from, int32_t r)
{
	memcpy(to->out + (int64_t)r * KVK_MLA_LATENT, from->out + (int64_t)r * KVK_MLA_LATENT,
	       KVK_MLA_LATENT * sizeof(float));
	to->max[r] = from->max[r];
	to->sum[r] = from->sum[r];
}

/*
 * Items [first, end) of the window are all that it has of one unit: they are merged into the first one's
 * slot, or into what the last window carried over.
 */
static void merge_rows(const struct frame *f, int64_t first, int64_t end, int32_t row, int32_t row_end)
{
	const struct item *item = &f->item[first];
	const struct unit unit = unit_at(f, item->unit);
	const bool carried = item->split > 0;
	const struct slot to = carried ? carry_at(f, f->window) : slot_at(f, first);
	const struct slot next = carry_at(f, f->window + 1);
	const bool complete = f->item[end - 1].split + 1 == item->splits;

	if (row_end > unit.rows)
		row_end = unit.rows;
	for (int32_t r = row; r < row_end; r++) {
		merge_row(f, &to, carried ? first : first + 1, end, r);
		if (complete)
			write_row(f, &unit, &to, r);
		else
			copy_row(&next, &to, r);
	}
}

/* Each unit's first item in the window stands for the unit, once for each block of rows. */
static void visit_merge(void *arg, uint32_t thread, int64_t index)
{
	const struct frame *f = arg;
	const int64_t first = index % f->items;
	const int32_t row = (int32_t)(index / f->items) * MERGE_ROWS;
	int64_t end = first + 1;

	(void)thread;
	if (first > 0 && f->item[first - 1].unit == f->item[first].unit)
		return;
	while (end < f->items && f->item[end].unit == f->item[first].unit)
		end++;
	merge_rows(f, first, end, row, row + MERGE_ROWS);
}

/*
 * The next items, from split *split of unit *unit on. A unit without keys has an item too: its rows are
 * written.
 */
static void fill_window(struct frame *f, int64_t *unit, int32_t *split)
{
	f->items = 0;
	while (f->items < f->slots && *unit < f->units) {
		const struct unit u = unit_at(f, *unit);
		const int32_t keys = unit_keys(f, &u);
		const int32_t splits = keys > 0 ? (keys - 1) / KVK_MLA_SPLIT + 1 : 1;

		for (; *split < splits && f->items < f->slots; (*split)++)
			f->item[f->items++] = (struct item){.unit = *unit, .split = *split, .splits = splits};
		if (*split == splits) {
			(*unit)++;
			*split = 0;
		}
	}
}

static void choose_ops(struct frame *f, enum kvk_level level)
{
	const struct kvk_mla_few_ops *few = KVK_LEVEL_TABLE(kvk_mla_few, level);

	f->ops = *KVK_LEVEL_TABLE(kvk_mla, level);
	f->row_ops = *KVK_LEVEL_TABLE(kvk_mla_rows, level);
	if (f->job->heads > KVK_MLA_FEW || f->job->kv_dtype != KVK_BF16 || !few->attend)
		return;
	f->ops.attend = few->attend;
	f->row_ops.pack_queries = few->pack_queries;
	f->row_ops.store_row = few->store_row;
}

void kvk_mla_run(const struct kvk_mla_job *job, enum kvk_level level)
{
	struct frame f = {.job = job};
	const int32_t queries = job->source.queries;
	int64_t unit = 0;
	int32_t split = 0;

	choose_ops(&f, level);
	set_sizes(&f, queries, job->heads, job->threads);
	f.units = (int64_t)job->batch * (job->s_q / queries) * f.tiles;
	lay_out_scratch(&f);
	for (fill_window(&f, &unit, &split); f.items > 0; fill_window(&f, &unit, &split)) {
		kvk_each(job->threads, f.items, visit_item, &f);
		kvk_each(job->threads, (int64_t)f.items * ((f.rows + MERGE_ROWS - 1) / MERGE_ROWS),
			 visit_merge, &f);
		f.window++;
	}
}
