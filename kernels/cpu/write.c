/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache writes on the CPU: parameters become a job of byte strides (write.h), heads that lie side by side in source and
 * cache become one, and the tokens are dealt out to the threads in pieces that are worth a thread's while.
 */
#include "write.h"
#include "cpu.h"
#include "level.h"
#include "threads.h"

#include <stddef.h>

KVK_LEVEL_TABLES(kvk_write_ops, kvk_write);

/* Bytes that one thread writes at a time. */
#define PIECE_BYTES (64 << 10)
/*
 * Bytes from which on a call goes past the cache. Rows at random places of a large cache are in no processor cache before,
 * so that an ordinary store reads each line first: streaming was three times as fast from 72 KiB on, and still faster when
 * the same core read the rows right after.
 */
#define PAST_CACHE_BYTES (64 << 10)

struct pieces {
	const struct kvk_write_job *job;
	void (*write)(const struct kvk_write_job *job, int32_t first, int32_t last);
	int32_t tokens;
	int32_t piece_tokens;
};

static void write_piece(void *arg, uint32_t thread, int64_t item)
{
	const struct pieces *pieces = arg;
	int64_t first = item * pieces->piece_tokens;
	int64_t last = first + pieces->piece_tokens;

	(void)thread;
	pieces->write(pieces->job, (int32_t)first, (int32_t)(last < pieces->tokens ? last : pieces->tokens));
}

static bool has_whole_lines(const struct kvk_write_lane *lane, int64_t element_bytes)
{
	uint64_t all = (uint64_t)(uintptr_t)lane->dst | (uint64_t)lane->dst_page | (uint64_t)lane->dst_token |
		       (uint64_t)(lane->count * element_bytes);

	return (all | (uint64_t)(lane->heads > 1 ? lane->dst_head : 0)) % 64 == 0;
}

static void run(struct kvk_write_job *job, int32_t tokens, int64_t token_bytes, enum kvk_level level,
		const struct kvk_threads *threads)
{
	const struct kvk_write_ops *ops = KVK_LEVEL_TABLE(kvk_write, level);
	struct pieces pieces = {.job = job,
				.write = job->dst_dtype == KVK_MLA_FP8 ? ops->write_fp8 : ops->write,
				.tokens = tokens,
				.piece_tokens = tokens};

	job->past_cache = tokens * token_bytes >= PAST_CACHE_BYTES;
	job->whole_lines = true;
	for (uint32_t l = 0; l < job->lanes; l++)
		job->whole_lines &= has_whole_lines(&job->lane[l], (int64_t)kvk_dtype_bytes(job->dst_dtype));
	if (kvk_thread_count(threads) > 1)
		pieces.piece_tokens = token_bytes < PIECE_BYTES ? (int32_t)(PIECE_BYTES / token_bytes) : 1;
	kvk_each(threads, (tokens - 1) / pieces.piece_tokens + 1, write_piece, &pieces);
}

/* Bytes of a token, or as many as make no difference any more. */
static int64_t bounded(int64_t elements, int64_t bytes)
{
	return elements < PAST_CACHE_BYTES ? elements * bytes : PAST_CACHE_BYTES;
}

/* Heads one behind the other on both sides are one long head. */
static struct kvk_write_lane joined(struct kvk_write_lane lane, int64_t src_bytes, int64_t dst_bytes)
{
	int64_t all = (int64_t)lane.heads * lane.count;

	if (lane.src_head == lane.count * src_bytes && lane.dst_head == lane.count * dst_bytes &&
	    all <= INT32_MAX) {
		lane.count = (int32_t)all;
		lane.heads = 1;
	}
	return lane;
}

void kvk_kv_write_cpu(const struct kvk_kv_write_params *p, enum kvk_level level)
{
	const int64_t from = (int64_t)kvk_dtype_bytes(p->src_dtype);
	const int64_t to = (int64_t)kvk_dtype_bytes(p->cache_dtype);
	const struct kvk_write_lane k = {.src = p->k,
					 .dst = p->k_cache,
					 .src_token = p->k_stride_token * from,
					 .src_head = p->k_stride_head * from,
					 .dst_page = p->k_cache_stride_page * to,
					 .dst_token = p->k_cache_stride_token * to,
					 .dst_head = p->k_cache_stride_head * to,
					 .heads = p->heads,
					 .count = p->head_dim};
	const struct kvk_write_lane v = {.src = p->v,
					 .dst = p->v_cache,
					 .src_token = p->v_stride_token * from,
					 .src_head = p->v_stride_head * from,
					 .dst_page = p->v_cache_stride_page * to,
					 .dst_token = p->v_cache_stride_token * to,
					 .dst_head = p->v_cache_stride_head * to,
					 .heads = p->heads,
					 .count = p->head_dim};
	struct kvk_write_job job = {.slots = p->slots,
				    .slot_bytes = p->slot_bytes,
				    .page_tokens = p->page_tokens,
				    .src_dtype = p->src_dtype,
				    .dst_dtype = p->cache_dtype,
				    .lanes = p->v ? 2 : 1,
				    .lane = {joined(k, from, to), joined(v, from, to)}};

	run(&job, p->tokens, bounded((int64_t)p->heads * p->head_dim, to * job.lanes), level, p->threads);
}

void kvk_mla_write_cpu(const struct kvk_mla_write_params *p, enum kvk_level level)
{
	const bool fp8 = p->kv_dtype == KVK_MLA_FP8;
	const int64_t from = (int64_t)kvk_dtype_bytes(p->src_dtype);
	const int64_t to = (int64_t)kvk_dtype_bytes(p->kv_dtype);
	const struct kvk_write_lane latent = {.src = p->latent,
					      .dst = p->kv,
					      .src_token = p->latent_stride * from,
					      .dst_page = p->kv_stride_page * to,
					      .dst_token = p->kv_stride_token * to,
					      .heads = 1,
					      .count = KVK_MLA_LATENT};
	struct kvk_write_job job = {.slots = p->slots,
				    .slot_bytes = p->slot_bytes,
				    .page_tokens = p->page_tokens,
				    .src_dtype = p->src_dtype,
				    .dst_dtype = p->kv_dtype,
				    .lanes = 2,
				    .lane = {latent, latent}};

	job.lane[1].src = p->rope;
	job.lane[1].src_token = p->rope_stride * from;
	job.lane[1].count = KVK_MLA_ROPE;
	if (!fp8)
		job.lane[1].dst += KVK_MLA_LATENT * to;
	run(&job, p->tokens, fp8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH * to, level, p->threads);
}
