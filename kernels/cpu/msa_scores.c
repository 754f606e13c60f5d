/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MSA block scores. Work is cut by what is scored, never by what else is in the batch:
 *
 *	chunks	(sequence, run of blocks): what threads share
 *	sets	of up to 8 groups of four index queries (query row, heads), loaded once a chunk
 *	blocks	of the chunk; those behind the last visible key are -INF
 *	groups	of the set: four maxima over the block's keys that the query row sees
 *	tiles	of 32 keys: msa_loops.c
 *
 * So keys come from memory once for 32 index queries, which is all there are for a few query rows of a
 * sequence; the groups behind the first find a block of 128 keys in L2.
 */
#include "../dtype.h"
#include "../internal.h"
#include "cpu.h"
#include "msa_scan.h"
#include "threads.h"

#define CHUNK_KEYS 8192 /* about: whole blocks */
#define SET_GROUPS 8

KVK_LEVEL_TABLES(kvk_msa_ops, kvk_msa);

struct call {
	const struct kvk_msa_scores_params *p;
	const struct kvk_msa_ops *ops;
	int32_t width;        /* of a converted row */
	int32_t head_groups;  /* of a query row */
	int32_t chunk_blocks; /* of a chunk */
	int64_t chunks;       /* of a sequence */
};

/* Four queries of one row; fewer heads are filled up with zeros. */
struct group {
	int32_t row;
	int32_t head, heads;
	int32_t visible; /* keys that the row sees */
	int packed;      /* its queries, see struct kvk_msa_scan */
};

/* The working memory of one thread, on its stack. */
struct work {
	float q[SET_GROUPS][KVK_MSA_QUERIES * KVK_MSA_WIDTH] KVK_MSA_ALIGNED;
	struct group group[SET_GROUPS];
	int groups;
	struct kvk_msa_scan scan;
	struct kvk_msa_keys keys[2];
};

static int32_t smaller(int64_t a, int64_t b)
{
	return (int32_t)(a < b ? a : b);
}

/* Row addresses of up to a tile of keys from `position` on, those below `end`. */
static void locate_keys(const struct kvk_msa_scores_params *p, const int32_t *table, int32_t position,
			int32_t end, struct kvk_msa_keys *keys)
{
	const int64_t bytes = (int64_t)kvk_dtype_bytes(p->k_dtype);

	keys->count = 0;
	while (position < end && keys->count < KVK_MSA_KEYS) {
		const int32_t token = position % p->page_tokens;
		const int32_t room = smaller(end - position, KVK_MSA_KEYS - keys->count);
		const int32_t run = smaller(room, p->page_tokens - token);
		const char *row =
			(const char *)p->index_k +
			(table[position / p->page_tokens] * p->k_stride_page + token * p->k_stride_token) *
				bytes;

		for (int32_t i = 0; i < run; i++)
			keys->row[keys->count++] = row + i * p->k_stride_token * bytes;
		position += run;
	}
}

static void load_group(const struct call *call, struct group *group, float *ordered)
{
	const struct kvk_msa_scores_params *p = call->p;
	float q[KVK_MSA_QUERIES * KVK_MSA_WIDTH] = {0};

	for (int32_t h = 0; h < group->heads; h++) {
		const int64_t at = group->row * p->q_stride_row + (group->head + h) * p->q_stride_head;

		for (int32_t d = 0; d < p->dim; d++)
			q[h * call->width + d] = kvk_load(p->index_q, p->q_dtype, at + d);
	}
	group->packed = call->ops->order_queries(ordered, q, call->width, p->k_dtype);
}

/* The set that begins at group `first` of the sequence's. */
static void load_set(const struct call *call, int32_t sequence, int64_t first, struct work *work)
{
	const struct kvk_msa_scores_params *p = call->p;
	const int32_t row = kvk_first_row(p->cu_q, p->s_q, sequence);
	const int32_t count = kvk_first_row(p->cu_q, p->s_q, sequence + 1) - row;

	work->groups = smaller((int64_t)count * call->head_groups - first, SET_GROUPS);
	for (int g = 0; g < work->groups; g++) {
		const int32_t query = (int32_t)((first + g) / call->head_groups);
		const int32_t head = (int32_t)((first + g) % call->head_groups) * KVK_MSA_QUERIES;

		work->group[g] = (struct group){.row = row + query,
						.head = head,
						.heads = smaller(p->index_heads - head, KVK_MSA_QUERIES),
						.visible = kvk_visible(p->lens[sequence], count, query, 1)};
		load_group(call, &work->group[g], work->q[g]);
	}
}

static void begin_scan(struct kvk_msa_scan *scan, const float *q, int packed)
{
	scan->q = q;
	scan->packed = packed;
	for (int i = 0; i < KVK_MSA_LANES; i++) {
		scan->best[i] = -INFINITY;
		scan->bad[i] = 0;
	}
}

static float scan_result(const struct kvk_msa_scan *scan, int query)
{
	float best = -INFINITY;

	for (int i = query; i < KVK_MSA_LANES; i += KVK_MSA_QUERIES) {
		if (scan->bad[i])
			return NAN;
		if (scan->best[i] > best)
			best = scan->best[i];
	}
	return best;
}

static void store_scores(const struct kvk_msa_scores_params *p, const struct group *group, int32_t block,
			 const struct kvk_msa_scan *scan)
{
	for (int32_t h = 0; h < group->heads; h++)
		p->score[(group->head + h) * p->score_stride_head + group->row * p->score_stride_row +
			 block] = scan_result(scan, h);
}

/* One group over the keys [begin, end) of a block. The first group of a set asks for what comes behind. */
static void scan_block(const struct call *call, const int32_t *table, int32_t begin, int32_t end, int32_t len,
		       int fetch, struct work *work)
{
	int now = 0;

	locate_keys(call->p, table, begin, end, &work->keys[0]);
	for (int32_t position = begin; position < end; now = !now) {
		const int32_t next = position + work->keys[now].count;

		locate_keys(call->p, table, next, fetch ? len : end, &work->keys[!now]);
		call->ops->scan(&work->scan, &work->keys[now], work->keys[now].count, &work->keys[!now]);
		work->keys[!now].count = smaller(work->keys[!now].count, end - next);
		position = next;
	}
}

static void score_block(const struct call *call, int32_t sequence, int32_t block, struct work *work)
{
	const struct kvk_msa_scores_params *p = call->p;
	const int32_t *table = p->block_table + sequence * p->table_stride;
	const int64_t begin = (int64_t)block * p->block_tokens;

	for (int g = 0; g < work->groups; g++) {
		const struct group *group = &work->group[g];

		begin_scan(&work->scan, work->q[g], group->packed);
		if (begin < group->visible)
			scan_block(call, table, (int32_t)begin,
				   smaller(begin + p->block_tokens, group->visible), p->lens[sequence],
				   g == 0, work);
		store_scores(p, group, block, &work->scan);
	}
}

static void visit_chunk(void *arg, uint32_t thread, int64_t item)
{
	const struct call *call = arg;
	const struct kvk_msa_scores_params *p = call->p;
	const int32_t sequence = (int32_t)(item / call->chunks);
	const int64_t first = item % call->chunks * call->chunk_blocks;
	const int32_t end = smaller(first + call->chunk_blocks, p->blocks);
	const int32_t rows =
		kvk_first_row(p->cu_q, p->s_q, sequence + 1) - kvk_first_row(p->cu_q, p->s_q, sequence);
	struct work work;

	(void)thread;
	work.scan.dim = p->dim;
	work.scan.width = call->width;
	work.scan.dtype = p->k_dtype;
	for (int64_t set = 0; set < (int64_t)rows * call->head_groups; set += SET_GROUPS) {
		load_set(call, sequence, set, &work);
		for (int32_t block = (int32_t)first; block < end; block++)
			score_block(call, sequence, block, &work);
	}
}

/* Rows [begin, end) are of no sequence. */
static void score_padding(const struct kvk_msa_scores_params *p, int32_t begin, int32_t end)
{
	for (int32_t row = begin; row < end; row++) {
		for (int32_t h = 0; h < p->index_heads; h++)
			for (int32_t block = 0; block < p->blocks; block++)
				p->score[h * p->score_stride_head + row * p->score_stride_row + block] =
					-INFINITY;
		if (p->n_valid)
			p->n_valid[row] = 0;
	}
}

static void count_valid(const struct kvk_msa_scores_params *p, int32_t sequence)
{
	const int32_t row = kvk_first_row(p->cu_q, p->s_q, sequence);
	const int32_t count = kvk_first_row(p->cu_q, p->s_q, sequence + 1) - row;

	for (int32_t i = 0; i < count; i++) {
		const int32_t visible = kvk_visible(p->lens[sequence], count, i, 1);

		p->n_valid[row + i] = visible ? (visible - 1) / p->block_tokens + 1 : 0;
	}
}

void kvk_msa_scores_cpu(const struct kvk_msa_scores_params *p, enum kvk_level level)
{
	struct call call = {.p = p, .ops = KVK_LEVEL_TABLE(kvk_msa, level)};

	call.width = (p->dim + KVK_MSA_WIDTH_STEP - 1) / KVK_MSA_WIDTH_STEP * KVK_MSA_WIDTH_STEP;
	call.head_groups = (p->index_heads - 1) / KVK_MSA_QUERIES + 1;
	call.chunk_blocks = p->block_tokens < CHUNK_KEYS ? CHUNK_KEYS / p->block_tokens : 1;
	call.chunks = ((int64_t)p->blocks + call.chunk_blocks - 1) / call.chunk_blocks;
	score_padding(p, 0, kvk_first_row(p->cu_q, p->s_q, 0));
	score_padding(p, kvk_first_row(p->cu_q, p->s_q, p->batch), p->rows);
	for (int32_t r = 0; p->n_valid && r < p->batch; r++)
		count_valid(p, r);
	kvk_each(p->threads, p->batch * call.chunks, visit_chunk, &call);
}

size_t kvk_msa_scores_cpu_scratch(const struct kvk_msa_scores_params *shape)
{
	(void)shape;
	return 0;
}
