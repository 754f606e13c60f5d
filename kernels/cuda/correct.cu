/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Length correction on the device: kvpool/prep.h has the rules. One block, in four steps: the prefix sums
 * of query tokens and lengths over shared memory; then tokens, plans and lengths, each request by one
 * thread. Everything is derived from the staged snapshot and the corrected lengths, so that it can run
 * again, in a graph too.
 */
#include "args.h"
#include "value.h"

#define THREADS 256
#define MAX_BATCH 8192

struct correct_shared {
	int32_t start[MAX_BATCH + 1]; /* first query token of each request */
	int32_t kv_start[MAX_BATCH + 1];
	int32_t kv[MAX_BATCH];
	int32_t sum[2][THREADS];
};

static_assert(sizeof(correct_shared) == KVK_CUDA_CORRECT_SHARED, "what the launcher asks for");

KVK_DEVICE int32_t not_negative(int32_t value)
{
	return value > 0 ? value : 0;
}

/* The run of requests that this thread adds up. */
KVK_DEVICE void own_run(int32_t batch, int32_t &begin, int32_t &end)
{
	const int32_t each = (batch + THREADS - 1) / THREADS;

	begin = kvk_thread() * each < batch ? kvk_thread() * each : batch;
	end = begin + each < batch ? begin + each : batch;
}

/* kv of every request; then both prefix sums: each thread its own run, behind the sums of those before it. */
KVK_DEVICE void prefix_sums(correct_shared &sm, const kvk_cuda_correct_args &p)
{
	int32_t begin, end, tokens = 0, keys = 0;

	own_run(p.batch, begin, end);
	for (int32_t r = begin; r < end; r++) {
		sm.kv[r] = p.corrected[r] < p.staged[r] ? p.corrected[r] : p.staged[r];
		tokens += not_negative(p.qo_lens[r]);
		keys += not_negative(sm.kv[r]);
	}
	sm.sum[0][kvk_thread()] = tokens;
	sm.sum[1][kvk_thread()] = keys;
	kvk_block_sync();
	tokens = keys = 0;
	for (int32_t i = 0; i < kvk_thread(); i++) {
		tokens += sm.sum[0][i];
		keys += sm.sum[1][i];
	}
	for (int32_t r = begin; r < end; r++) {
		sm.start[r] = tokens;
		sm.kv_start[r] = keys;
		tokens += not_negative(p.qo_lens[r]);
		keys += not_negative(sm.kv[r]);
	}
	if (kvk_thread() == THREADS - 1) {
		sm.start[p.batch] = tokens;
		sm.kv_start[p.batch] = keys;
	}
	kvk_block_sync();
}

/* Slot of the token at `pos`, from a table of slots. */
KVK_DEVICE int64_t slot_of_position(const kvk_cuda_correct_args &p, const int32_t *row, int32_t pos)
{
	return row[pos < 0 ? 0 : pos < p.table_width ? pos : p.table_width - 1];
}

/* The same from a table of pages. */
KVK_DEVICE int64_t slot_of_page(const kvk_cuda_correct_args &p, const int32_t *row, int32_t pos)
{
	const int32_t at = not_negative(pos);
	const int32_t column = at / p.page_tokens < p.table_width ? at / p.page_tokens : p.table_width - 1;

	return row[column] < 0 ? -1 : static_cast<int64_t>(row[column]) * p.page_tokens + at % p.page_tokens;
}

KVK_DEVICE void write_token(const correct_shared &sm, const kvk_cuda_correct_args &p, int32_t r, int32_t at)
{
	const int32_t pos = sm.kv[r] - p.qo_lens[r] + at - sm.start[r];
	const int32_t *row = p.table + r * p.table_stride;
	const int64_t slot = p.pages && pos < 0    ? -1
			     : p.pages || p.newest ? slot_of_page(p, row, pos)
						   : slot_of_position(p, row, pos);
	const int32_t seen = pos + 1 > 1 - p.newest ? pos + 1 : 1 - p.newest;

	if (p.slot_bytes == 4)
		static_cast<int32_t *>(p.slots)[at] = static_cast<int32_t>(slot);
	else
		static_cast<int64_t *>(p.slots)[at] = slot;
	p.n_valid[at] = seen > 0 ? (seen - 1) / p.valid_tokens + 1 : 0;
}

KVK_DEVICE void write_tokens(const correct_shared &sm, const kvk_cuda_correct_args &p)
{
	const int32_t tokens = sm.start[p.batch] < p.room ? sm.start[p.batch] : p.room;

	for (int32_t at = kvk_thread(); at < tokens; at += THREADS) {
		int32_t low = 0, high = p.batch; /* start[low] <= at < start[high] */

		while (high - low > 1) {
			const int32_t middle = (low + high) / 2;

			if (sm.start[middle] <= at)
				low = middle;
			else
				high = middle;
		}
		write_token(sm, p, low, at);
	}
}

enum key { KV_SEGMENT_LENS, QO_OFFSET, SEQUSED_K };

/* What a key says of the query token at `pos`, or of the request (pos: that of its first token). */
KVK_DEVICE int32_t value_of(key what, int32_t kv, int32_t pos, bool per_token)
{
	if (what == QO_OFFSET)
		return not_negative(pos);
	return what == SEQUSED_K && per_token ? not_negative(pos + 1) : kv;
}

/*
 * One row a request where the counts leave the choice. 1: the rows are neither one a request nor one a
 * token.
 */
KVK_DEVICE int32_t write_key(const correct_shared &sm, const kvk_cuda_correct_args &p,
			     const kvk_cuda_correct_part &part, key what, int32_t *array, int32_t rows)
{
	const int32_t first = sm.start[part.first];
	const bool per_token = rows != part.last - part.first;

	if (per_token && rows != sm.start[part.last] - first)
		return 1;
	for (int32_t r = part.first + kvk_thread(); r < part.last; r += THREADS) {
		const int32_t pos = sm.kv[r] - p.qo_lens[r];
		const int32_t count = per_token ? p.qo_lens[r] : 1;
		const int32_t to = per_token ? sm.start[r] - first : r - part.first;

		for (int32_t i = 0; i < count; i++)
			array[to + i] = value_of(what, sm.kv[r], pos + i, per_token);
	}
	return 0;
}

KVK_DEVICE void write_part(const correct_shared &sm, const kvk_cuda_correct_args &p, int32_t index)
{
	const kvk_cuda_correct_part &part = p.parts[index];
	int32_t fault;

	if (part.sparse_flavour)
		fault = write_key(sm, p, part, SEQUSED_K, part.seqused_k, part.seqused_rows);
	else
		fault = write_key(sm, p, part, KV_SEGMENT_LENS, part.kv_segment_lens, part.kv_segment_rows) |
			write_key(sm, p, part, QO_OFFSET, part.qo_offset, part.qo_offset_rows);
	if (p.faults && kvk_thread() == 0)
		p.faults[index] = fault;
}

KVK_KERNEL(kvk_cuda_correct, kvk_cuda_correct_args, THREADS, 1)
{
	KVK_SHARED(correct_shared, sm);

	if (kvk_block() > 0)
		return;
	prefix_sums(sm, p);
	write_tokens(sm, p);
	for (int32_t i = 0; i < p.part_count; i++)
		write_part(sm, p, i);
	/* seq_lens may be `corrected`: it was read before the last barrier, by whom it may be. */
	for (int32_t r = kvk_thread(); r < p.batch; r += THREADS) {
		p.seq_lens[r] = sm.kv[r];
		if (p.cu_kv)
			p.cu_kv[r] = sm.kv_start[r];
	}
	if (p.cu_kv && kvk_thread() == 0)
		p.cu_kv[p.batch] = sm.kv_start[p.batch];
}
