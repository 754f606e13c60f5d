/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MSA block scores. A warp takes one block of one sequence for up to 16 (query, head) rows. Fast kernels:
 * rows are A of mma m16n8k16, eight keys at a time are B, both straight from global memory into registers:
 * a dot product doesn't mind in which order its terms come, so lane t of a quad takes 16 consecutive bytes
 * at 8 t of every 32 elements and calls them the columns that the fragment gives it. No shared memory, no
 * shuffle until a block's maximum. index_k is read once for every 16 rows, each byte by one lane.
 *
 * Grid: units of (sequence, block), the block fastest, so that neighbouring warps stream neighbouring pages;
 * a warp takes all rows of its sequence, as only the device knows how many there are. The plain kernel takes any
 * dtype and dim: a lane a key.
 */
#include "args.h"
#include "rows.h"
#include "tile.h"

#define ROWS 16
#define DIM 128
#define STEPS (DIM / 32) /* of 32 elements; two mma each */

/*
 * What a warp works on: rows [first, first + rows) of a sequence's `queries * heads`, head fastest; one
 * block.
 */
struct unit {
	int32_t sequence, first_row, queries;
	int32_t first, rows;
	int32_t block;
	int32_t len;
};

KVK_DEVICE int32_t query_of(const kvk_cuda_scores_args &p, const unit &u, int32_t row)
{
	return (u.first + row) / p.index_heads;
}

/* Keys of the sequence that the row sees. */
KVK_DEVICE int32_t seen_by(const kvk_cuda_scores_args &p, const unit &u, int32_t row)
{
	const int32_t seen = u.len - (u.queries - 1 - query_of(p, u, row));

	return row < u.rows && seen > 0 ? seen : 0;
}

/* Element offset of key `at`, or -1. */
KVK_DEVICE int64_t find_key(const kvk_cuda_scores_args &p, const unit &u, int64_t at)
{
	int32_t page;

	if (at >= u.len || at >= static_cast<int64_t>(p.table_width) * p.page_tokens)
		return KVK_NO_KEY;
	page = p.block_table[u.sequence * p.table_stride + at / p.page_tokens];
	return page < 0 || page >= p.pages ? KVK_NO_KEY
					   : page * p.k_stride_page + at % p.page_tokens * p.k_stride_token;
}

KVK_DEVICE int64_t query_offset(const kvk_cuda_scores_args &p, const unit &u, int32_t row)
{
	return (u.first_row + query_of(p, u, row)) * p.q_stride_row +
	       (u.first + row) % p.index_heads * p.q_stride_head;
}

KVK_DEVICE void store_score(const kvk_cuda_scores_args &p, const unit &u, int32_t row, float score)
{
	const int64_t head = (u.first + row) % p.index_heads;

	if (row < u.rows)
		p.score[head * p.score_stride_head +
			static_cast<int64_t>(u.first_row + query_of(p, u, row)) * p.score_stride_row +
			u.block] = score;
}

/* A maximum that a NaN wins, whichever comes first. */
KVK_DEVICE float max_or_nan(float a, float b)
{
	return a != a || a > b ? a : b;
}

/* ------------------------------------------------------------------ formats */

/* Eight elements as four registers of pairs. */
struct bf16_keys {
	typedef kvk_bf16_format FORMAT;
	static constexpr int BYTES = 2;
	static KVK_METHOD kvk_16_bytes load(const void *from)
	{
		return kvk_load16(from);
	}
};

struct f16_keys : bf16_keys {
	typedef kvk_f16_format FORMAT;
};

/* e4m3 is exact in either format. */
template <class FORMAT_> struct e4m3_keys {
	typedef FORMAT_ FORMAT;
	static constexpr int BYTES = 1;
	static KVK_METHOD kvk_16_bytes load(const void *from)
	{
		const kvk_8_bytes codes = kvk_load8(from);
		kvk_16_bytes to;

		KVK_UNROLL
		for (int i = 0; i < 4; i++) {
			const uint32_t pair = codes.word[i / 2] >> 16 * (i % 2);

			to.word[i] = FORMAT::pack(kvk_e4m3_to_f32(static_cast<uint8_t>(pair)),
						  kvk_e4m3_to_f32(static_cast<uint8_t>(pair >> 8)));
		}
		return to;
	}
};

/* ------------------------------------------------------------------ fast */

/* Rows lane / 4 and lane / 4 + 8; of each step, the two mma's A registers. */
KVK_DEVICE void load_rows(const kvk_cuda_scores_args &p, const unit &u, uint32_t (&a)[STEPS][2][4])
{
	KVK_UNROLL
	for (int half = 0; half < 2; half++) {
		const int32_t row = kvk_lane() / 4 + 8 * half;
		const uint16_t *from = static_cast<const uint16_t *>(p.index_q) +
				       (row < u.rows ? query_offset(p, u, row) : 0) + kvk_lane() % 4 * 8;

		KVK_UNROLL
		for (int step = 0; step < STEPS; step++) {
			kvk_16_bytes eight = {{0, 0, 0, 0}};

			if (row < u.rows)
				eight = kvk_load16(from + 32 * step);
			a[step][0][half] = eight.word[0];
			a[step][0][2 + half] = eight.word[1];
			a[step][1][half] = eight.word[2];
			a[step][1][2 + half] = eight.word[3];
		}
	}
}

/* Scores of 16 rows and eight keys, the first of them at position `at`. */
template <class K>
KVK_DEVICE void score_8_keys(const kvk_cuda_scores_args &p, const unit &u, int64_t at,
			     const uint32_t (&a)[STEPS][2][4], float (&c)[4])
{
	const int64_t offset = find_key(p, u, at + kvk_lane() / 4);
	const char *key = static_cast<const char *>(p.index_k) + (offset + kvk_lane() % 4 * 8) * K::BYTES;
	kvk_16_bytes b[STEPS];

	KVK_UNROLL
	for (int step = 0; step < STEPS; step++) {
		b[step] = {{0, 0, 0, 0}};
		if (offset != KVK_NO_KEY)
			b[step] = K::load(key + 32 * step * K::BYTES);
	}
	KVK_UNROLL
	for (int step = 0; step < STEPS; step++) {
		K::FORMAT::multiply(c, a[step][0], b[step].word);
		K::FORMAT::multiply(c, a[step][1], b[step].word + 2);
	}
}

template <class K>
KVK_DEVICE void score_unit(const kvk_cuda_scores_args &p, const unit &u, const uint32_t (&a)[STEPS][2][4])
{
	const int64_t first = static_cast<int64_t>(u.block) * p.block_tokens;
	const int32_t seen[2] = {seen_by(p, u, kvk_lane() / 4), seen_by(p, u, kvk_lane() / 4 + 8)};
	float max[2] = {-KVK_INFINITY, -KVK_INFINITY};

	for (int32_t i = 0; i < p.block_tokens && first + i < u.len; i += 8) {
		float c[4] = {0, 0, 0, 0};

		score_8_keys<K>(p, u, first + i, a, c);
		KVK_UNROLL
		for (int n = 0; n < 4; n++) {
			const int32_t key = i + kvk_lane() % 4 * 2 + n % 2;

			if (key < p.block_tokens && first + key < seen[n / 2])
				max[n / 2] = max_or_nan(c[n], max[n / 2]);
		}
	}
	KVK_UNROLL
	for (int half = 0; half < 2; half++) {
		max[half] = max_or_nan(max[half], kvk_shuffle_xor_f32(max[half], 1));
		max[half] = max_or_nan(max[half], kvk_shuffle_xor_f32(max[half], 2));
		if (kvk_lane() % 4 == 0)
			store_score(p, u, kvk_lane() / 4 + 8 * half, max[half]);
	}
}

/* ------------------------------------------------------------------ plain */

KVK_DEVICE float plain_dot(const kvk_cuda_scores_args &p, int64_t query, int64_t key)
{
	float sum = 0;

	for (int32_t d = 0; d < p.dim; d++)
		sum += kvk_load(p.index_q, p.q_dtype, query + d) * kvk_load(p.index_k, p.k_dtype, key + d);
	return sum;
}

KVK_DEVICE void score_row_plainly(const kvk_cuda_scores_args &p, const unit &u, int32_t row)
{
	const int64_t first = static_cast<int64_t>(u.block) * p.block_tokens;
	const int32_t seen = seen_by(p, u, row);
	const int64_t query = query_offset(p, u, row);
	float max = -KVK_INFINITY;

	for (int32_t i = kvk_lane(); i < p.block_tokens && first + i < seen; i += 32) {
		const int64_t key = find_key(p, u, first + i);

		if (key != KVK_NO_KEY)
			max = max_or_nan(plain_dot(p, query, key), max);
	}
	for (int step = 16; step; step /= 2)
		max = max_or_nan(max, kvk_shuffle_xor_f32(max, step));
	if (kvk_lane() == 0)
		store_score(p, u, row, max);
}

/* ------------------------------------------------------------------ walking */

/* Rows of no sequence: nothing is visible. */
KVK_DEVICE void fill_padding(const kvk_cuda_scores_args &p, int64_t thread, int64_t threads)
{
	const int64_t entries = static_cast<int64_t>(p.index_heads) * p.rows * p.blocks;

	for (int64_t row = thread; row < p.rows; row += threads) {
		const kvk_row where = kvk_find_row(p.cu_q, p.s_q, p.batch, static_cast<int32_t>(row));
		const int32_t seen =
			where.sequence < 0 ? 0 : kvk_visible_keys(p.lens[where.sequence], where, true);

		if (p.n_valid)
			p.n_valid[row] = seen > 0 ? (seen - 1) / p.block_tokens + 1 : 0;
	}
	for (int64_t i = thread; i < entries; i += threads) {
		const int64_t row = i / p.blocks % p.rows, head = i / p.blocks / p.rows;

		if (kvk_find_row(p.cu_q, p.s_q, p.batch, static_cast<int32_t>(row)).sequence < 0)
			p.score[head * p.score_stride_head + row * p.score_stride_row + i % p.blocks] =
				-KVK_INFINITY;
	}
}

/* Rows of sequence `u.sequence` from `u.first` on; false when there are none. */
KVK_DEVICE bool find_rows(const kvk_cuda_scores_args &p, unit &u)
{
	u.first_row = p.cu_q ? p.cu_q[u.sequence] : u.sequence * p.s_q;
	u.queries = p.cu_q ? p.cu_q[u.sequence + 1] - u.first_row : p.s_q;
	u.rows = u.queries * p.index_heads - u.first;
	u.rows = u.rows < ROWS ? u.rows : ROWS;
	u.len = p.lens[u.sequence];
	return u.rows > 0;
}

/* All row tiles of (sequence, block) `index`: with cu_q only the device knows how many there are. */
template <class K> KVK_DEVICE void score_block(const kvk_cuda_scores_args &p, int64_t index)
{
	unit u = {static_cast<int32_t>(index / p.blocks), 0, 0, 0, 0,
		  static_cast<int32_t>(index % p.blocks), 0};

	for (; find_rows(p, u); u.first += ROWS) {
		uint32_t a[STEPS][2][4];

		load_rows(p, u, a);
		score_unit<K>(p, u, a);
	}
}

KVK_DEVICE void score_block_plainly(const kvk_cuda_scores_args &p, int64_t index)
{
	unit u = {static_cast<int32_t>(index / p.blocks), 0, 0, 0, 0,
		  static_cast<int32_t>(index % p.blocks), 0};

	for (; find_rows(p, u); u.first += ROWS)
		for (int32_t row = 0; row < u.rows; row++)
			score_row_plainly(p, u, row);
}

#define SCORES(name, score)                                                                                  \
	KVK_KERNEL(kvk_cuda_msa_scores_##name, kvk_cuda_scores_args, 128, 4)                                 \
	{                                                                                                    \
		const int64_t warps = kvk_blocks() * (kvk_threads_of_block() / 32);                          \
		const int64_t units = static_cast<int64_t>(p.batch) * p.blocks;                              \
                                                                                                             \
		fill_padding(p, kvk_block() * kvk_threads_of_block() + kvk_thread(),                         \
			     kvk_blocks() * kvk_threads_of_block());                                         \
		for (int64_t unit = kvk_block() * (kvk_threads_of_block() / 32) + kvk_warp(); unit < units;  \
		     unit += warps)                                                                          \
			score(p, unit);                                                                      \
	}

SCORES(bf16, score_block<bf16_keys>)
SCORES(f16, score_block<f16_keys>)
SCORES(bf16_e4m3, score_block<e4m3_keys<kvk_bf16_format>>)
SCORES(f16_e4m3, score_block<e4m3_keys<kvk_f16_format>>)
SCORES(plain, score_block_plainly)
