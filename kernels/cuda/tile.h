/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of a tile of query rows over a run of keys, by mma m16n8k16 and cp.async: the engine of every
 * attention kernel here. 16 RW rows meet KEYS keys at a time; RW x CW warps:
 *
 *	scores	warp (r, c) computes rows 16 r.. by keys KEYS / CW c..; the running maximum crosses the CW
 *		warps of a row through shared memory
 *	output	warp (r, c) owns rows 16 r.. by values DV / CW c.., in registers for the whole run
 *
 * The next tile is on its way while one is computed. Rows in shared memory are 16 bytes longer than they
 * need be, so that the eight rows of an ldmatrix lie in different banks. A shape of warpgroups (groups.h) differs in
 * where halves lie, in who multiplies, and in nothing else.
 *
 * Everything is in units of log2. The maximum starts at -1e30 and scores that must not count are -INF, so
 * that no difference of infinities arises; keys that must not count are zeros in shared memory, as 0 * NaN
 * is NaN. P is rounded to the values' format before it multiplies; its sum is not. With FP8 rows, whose
 * values reach far from their sum, P goes in two parts: what rounding left multiplies as well.
 */
#ifndef KVPOOL_KERNELS_CUDA_TILE_H
#define KVPOOL_KERNELS_CUDA_TILE_H

#include "groups.h"
#include "value.h"

#define KVK_NO_KEY -1

/* The storage formats of queries and values that the matrix unit takes. */
struct kvk_bf16_format {
	static constexpr uint32_t EXPONENT = 0x7f80; /* all ones: infinite or NaN */
	static KVK_METHOD void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
	{
		kvk_mma_bf16(c, a, b);
	}
	static KVK_METHOD void group_scores(float (&c)[4][4], uint64_t a, uint64_t b, bool add)
	{
		kvk_group_mma_32_bf16(c, a, b, add);
	}
	static KVK_METHOD void group_values(float (&c)[32][4], uint64_t a, uint64_t b, bool add)
	{
		kvk_group_mma_256_bf16(c, a, b, add);
	}
	static KVK_METHOD uint32_t pack(float low, float high)
	{
		return kvk_pack_bf16(low, high);
	}
	static KVK_METHOD float widen(uint32_t code)
	{
		return kvk_bf16_to_f32(static_cast<uint16_t>(code));
	}
};

struct kvk_f16_format {
	static constexpr uint32_t EXPONENT = 0x7c00;
	static KVK_METHOD void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
	{
		kvk_mma_f16(c, a, b);
	}
	static KVK_METHOD void group_scores(float (&c)[4][4], uint64_t a, uint64_t b, bool add)
	{
		kvk_group_mma_32_f16(c, a, b, add);
	}
	static KVK_METHOD void group_values(float (&c)[32][4], uint64_t a, uint64_t b, bool add)
	{
		kvk_group_mma_256_f16(c, a, b, add);
	}
	static KVK_METHOD uint32_t pack(float low, float high)
	{
		return kvk_pack_f16(low, high);
	}
	static KVK_METHOD float widen(uint32_t code)
	{
		return kvk_f16_to_f32(static_cast<uint16_t>(code));
	}
};

template <class FORMAT_, int RW_, int CW_, int KEYS_, int DK_, int DV_, bool OWN_V_, bool FP8_ROWS_>
struct kvk_shape {
	typedef FORMAT_ FORMAT;
	static constexpr int RW = RW_, CW = CW_, KEYS = KEYS_, DK = DK_, DV = DV_;
	static constexpr bool OWN_V = OWN_V_;       /* else the values are the first DV of a key */
	static constexpr bool FP8_ROWS = FP8_ROWS_; /* KVK_MLA_FP8: widened in shared memory */
	static constexpr int THREADS = 32 * RW * CW;
	static constexpr int ROWS = 16 * RW;
	static constexpr int WARP_KEYS = KEYS / CW, WARP_VALUES = DV / CW;
	static constexpr int Q_PITCH = DK + 8, V_PITCH = OWN_V ? DV + 8 : Q_PITCH,
			     P_PITCH = KEYS + 8; /* halves */
	static constexpr int STAGES = FP8_ROWS ? 1 : 2;
	static constexpr int P_PARTS = FP8_ROWS ? 2 : 1;
	static constexpr bool GROUPS = false; /* warpgroups multiply */
	static_assert(KEYS % (8 * CW) == 0 && KEYS % 16 == 0 && KEYS <= THREADS,
		      "keys are shared out by eights");
	static_assert(DK % 32 == 0 && DV % (16 * CW) == 0, "steps of sixteen");

	/* Places in the arrays of kvk_tile_shared, in halves. */
	static KVK_METHOD int32_t q_place(int32_t row, int32_t column)
	{
		return row * Q_PITCH + column;
	}
	static KVK_METHOD int32_t k_place(int32_t key, int32_t column)
	{
		return key * Q_PITCH + column;
	}
	static KVK_METHOD int32_t v_place(int32_t key, int32_t column)
	{
		return key * V_PITCH + column;
	}
	static KVK_METHOD int32_t p_place(int32_t row, int32_t key)
	{
		return row * P_PITCH + key;
	}
};

/*
 * 64 rows and two warpgroups: each takes half of the keys' scores and half of the values, of all rows. Sizes and
 * places are those of groups.h; the values are the first DV of a key.
 */
template <class FORMAT_, int KEYS_, int DK_, int DV_>
struct kvk_group_shape : kvk_shape<FORMAT_, 4, 2, KEYS_, DK_, DV_, false, false> {
	static constexpr bool GROUPS = true;
	static_assert(KEYS_ == KVK_COLUMN && DK_ % KVK_COLUMN == 0 && DV_ == 512,
		      "what the products are made for");

	static KVK_METHOD int32_t q_place(int32_t row, int32_t column)
	{
		return kvk_group_place<64>(row, column);
	}
	static KVK_METHOD int32_t k_place(int32_t key, int32_t column)
	{
		return kvk_group_place<KEYS_>(key, column);
	}
	static KVK_METHOD int32_t v_place(int32_t key, int32_t column)
	{
		return k_place(key, column);
	}
	static KVK_METHOD int32_t p_place(int32_t row, int32_t key)
	{
		return kvk_group_place<64>(row, key);
	}
};

/* Where a tile of keys lies that comes by kvk_box_load(): `page` is KVK_NO_KEY for one that comes by pieces. */
struct kvk_tile_box {
	int32_t page, token;
};

template <class S> struct kvk_tile_shared {
	alignas(16) uint16_t q[S::ROWS * S::Q_PITCH];
	alignas(16) uint16_t k[S::STAGES][S::KEYS * S::Q_PITCH];
	alignas(16) uint16_t v[S::OWN_V ? S::STAGES : 1][S::OWN_V ? S::KEYS * S::V_PITCH : 8];
	alignas(16) uint8_t raw[S::FP8_ROWS ? S::KEYS * KVK_MLA_FP8_ROW_BYTES : 16];
	alignas(16) uint16_t p[S::P_PARTS][S::ROWS * S::P_PITCH];
	float max[S::CW][S::ROWS];
	float sum[S::CW][S::ROWS];
	int64_t k_at[3][S::KEYS]; /* byte offset of tile t's keys in [t % 3], or KVK_NO_KEY */
	int64_t v_at[S::OWN_V ? 3 : 1][S::OWN_V ? S::KEYS : 1];
};

template <class FORMAT, int KEYS, int DK, int DV>
struct kvk_tile_shared<kvk_group_shape<FORMAT, KEYS, DK, DV>> {
	alignas(1024) uint16_t q[64 * DK];
	alignas(1024) uint16_t k[2][KEYS * DK];
	alignas(1024) uint16_t p[1][64 * KEYS];
	float max[2][64];
	float sum[2][64];
	int64_t k_at[3][KEYS];
	uint64_t full[2]; /* phases of a stage: its boxes are there */
	kvk_tile_box box[3];
};

/* A thread's part of the result: rows `row` and `row + 8` of the tile. */
template <class S> struct kvk_tile_state {
	float out[S::WARP_VALUES / 8][4];
	float max[2], sum[2];
	int32_t visible[2]; /* keys that the row sees */
	uint32_t phases;    /* bit s: parity of the next phase of full[s], in shapes of warpgroups */
};

/* Where a thread's fragments lie. */
template <class S> struct kvk_tile_place {
	int32_t lane, r, c; /* warp's row and column of warps */

	/* The four warps of a group share their columns. */
	KVK_METHOD kvk_tile_place()
	    : lane(kvk_lane()), r(S::GROUPS ? kvk_warp() % S::RW : kvk_warp() / S::CW),
	      c(S::GROUPS ? kvk_warp() / S::RW : kvk_warp() % S::CW)
	{
	}
	/* The tile's row of fragment half `i` (0 or 1). */
	KVK_METHOD int32_t row(int i) const
	{
		return 16 * r + lane / 4 + 8 * i;
	}
};

/* ------------------------------------------------------------------ bringing in */

template <class S, class SOURCE>
KVK_DEVICE void kvk_tile_load_queries(kvk_tile_shared<S> &sm, const SOURCE &source)
{
	constexpr int CHUNKS = S::DK / 8;

	for (int32_t i = kvk_thread(); i < S::ROWS * CHUNKS; i += S::THREADS) {
		const uint16_t *row = source.query(i / CHUNKS);

		kvk_copy16_async(&sm.q[S::q_place(i / CHUNKS, i % CHUNKS * 8)],
				 row ? row + i % CHUNKS * 8 : static_cast<const uint16_t *>(source.queries()),
				 row);
	}
}

/* Once in a kernel, in front of the first kvk_tile_attend(). */
template <class S> KVK_DEVICE void kvk_tile_open(kvk_tile_shared<S> &sm)
{
	if constexpr (S::GROUPS) {
		if (kvk_thread())
			return;
		kvk_phase_init(&sm.full[0], 1);
		kvk_phase_init(&sm.full[1], 1);
		kvk_shared_fence();
	}
}

/*
 * Whole tiles in a page that exists come in boxes. The others come by pieces, with zeros where there is no key: so
 * neither a bad table entry nor a page's unused end is ever fetched.
 */
template <class S, class SOURCE>
KVK_DEVICE void kvk_tile_find_box(kvk_tile_shared<S> &sm, const SOURCE &source, int64_t first, int32_t end,
				  int32_t t)
{
	kvk_tile_box box = {KVK_NO_KEY, 0};

	if (first + S::KEYS <= end && first % S::KEYS == 0)
		box = source.box(static_cast<int32_t>(first));
	sm.box[t % 3] = box;
}

/* One thread: a box for each 64 columns, which is how groups.h cuts a matrix. */
template <class S>
KVK_DEVICE void kvk_tile_load_boxes(kvk_tile_shared<S> &sm, const void *map, const kvk_tile_box &box,
				    int32_t stage)
{
	kvk_phase_expect(&sm.full[stage], S::KEYS * S::DK * sizeof(uint16_t));
	KVK_UNROLL
	for (int column = 0; column < S::DK; column += KVK_COLUMN)
		kvk_box_load(sm.k[stage] + column * S::KEYS, map, column, box.token, box.page,
			     &sm.full[stage]);
}

/* Looks up where the keys of tile `t` lie, one key a thread. */
template <class S, class SOURCE>
KVK_DEVICE void kvk_tile_find(kvk_tile_shared<S> &sm, const SOURCE &source, int32_t begin, int32_t end,
			      int32_t t)
{
	const int32_t i = kvk_thread();
	const int64_t key = static_cast<int64_t>(begin) + static_cast<int64_t>(t) * S::KEYS + i;
	int64_t k = KVK_NO_KEY, v = KVK_NO_KEY;

	if (i >= S::KEYS)
		return;
	if constexpr (S::GROUPS)
		if (i == 0)
			kvk_tile_find_box(sm, source, key, end, t);
	if (key < end)
		source.find(static_cast<int32_t>(key), k, v);
	sm.k_at[t % 3][i] = k;
	if constexpr (S::OWN_V)
		sm.v_at[t % 3][i] = v;
}

/* Rows of `chunks` 16-byte pieces from the offsets `at`, piece i of key n to place(n, i); zeros where there is none. */
template <class S, class PLACE>
KVK_DEVICE void kvk_tile_load_rows(const PLACE &place, const void *base, const int64_t *at, int chunks)
{
	for (int32_t i = kvk_thread(); i < S::KEYS * chunks; i += S::THREADS) {
		const int64_t offset = at[i / chunks];

		kvk_copy16_async(place(i / chunks, i % chunks),
				 static_cast<const char *>(base) +
					 (offset == KVK_NO_KEY ? 0 : offset + i % chunks * 16),
				 offset != KVK_NO_KEY);
	}
}

template <class S, class SOURCE>
KVK_DEVICE void kvk_tile_load(kvk_tile_shared<S> &sm, const SOURCE &source, int32_t t)
{
	const int32_t stage = t % S::STAGES;
	uint16_t *k = sm.k[stage];

	if constexpr (S::GROUPS)
		if (sm.box[t % 3].page != KVK_NO_KEY) {
			if (kvk_thread() == 0)
				kvk_tile_load_boxes(sm, source.map, sm.box[t % 3], stage);
			return;
		}
	if constexpr (S::FP8_ROWS) {
		uint8_t *raw = sm.raw;

		kvk_tile_load_rows<S>(
			[raw](int32_t key, int32_t piece) {
				return raw + key * KVK_MLA_FP8_ROW_BYTES + piece * 16;
			},
			source.keys(), sm.k_at[t % 3], KVK_MLA_FP8_ROW_BYTES / 16);
		return;
	}
	kvk_tile_load_rows<S>([k](int32_t key, int32_t piece) { return k + S::k_place(key, piece * 8); },
			      source.keys(), sm.k_at[t % 3], S::DK / 8);
	if constexpr (S::OWN_V) {
		uint16_t *v = sm.v[stage];

		kvk_tile_load_rows<S>(
			[v](int32_t key, int32_t piece) { return v + S::v_place(key, piece * 8); },
			source.values(), sm.v_at[t % 3], S::DV / 8);
	}
}

/* Four e4m3 times their scale, as halves. */
KVK_DEVICE kvk_8_bytes kvk_widen_4(uint32_t codes, float scale)
{
	float value[4];

	KVK_UNROLL
	for (int i = 0; i < 4; i++)
		value[i] = kvk_e4m3_to_f32(static_cast<uint8_t>(codes >> 8 * i)) * scale;
	return {{kvk_pack_bf16(value[0], value[1]), kvk_pack_bf16(value[2], value[3])}};
}

/* KVK_MLA_FP8 rows become bf16 rows. With a scale that is a power of two this is exact. */
template <class S> KVK_DEVICE void kvk_tile_widen(kvk_tile_shared<S> &sm)
{
	constexpr int QUADS = KVK_MLA_LATENT / 4, ROPE = KVK_MLA_ROPE / 4;

	for (int32_t i = kvk_thread(); i < S::KEYS * (QUADS + ROPE); i += S::THREADS) {
		const uint8_t *from = sm.raw + i / (QUADS + ROPE) * KVK_MLA_FP8_ROW_BYTES;
		uint16_t *to = sm.k[0] + i / (QUADS + ROPE) * S::Q_PITCH;
		const int32_t quad = i % (QUADS + ROPE);

		if (quad < QUADS)
			kvk_store8(to + 4 * quad, kvk_widen_4(reinterpret_cast<const uint32_t *>(from)[quad],
							      reinterpret_cast<const float *>(
								      from + KVK_MLA_LATENT)[quad / 32]));
		else
			kvk_store8(to + 4 * quad, reinterpret_cast<const kvk_8_bytes *>(
							  from + KVK_MLA_LATENT + 16)[quad - QUADS]);
	}
}

/* ------------------------------------------------------------------ computing */

template <class S>
KVK_DEVICE void kvk_tile_scores(const kvk_tile_shared<S> &sm, const uint16_t *k, const kvk_tile_place<S> &at,
				float (&score)[S::WARP_KEYS / 8][4])
{
	/*
	 * Lane i addresses row i % 16, halves i / 16 of A, and keys i % 8 with quarters i / 8 of two steps
	 * of B.
	 */
	const uint16_t *q_row = sm.q + (16 * at.r + at.lane % 16) * S::Q_PITCH + at.lane / 16 * 8;
	const uint16_t *k_row = k + (S::WARP_KEYS * at.c + at.lane % 8) * S::Q_PITCH + at.lane / 8 * 8;

	KVK_UNROLL
	for (int n = 0; n < S::WARP_KEYS / 8; n++)
		KVK_UNROLL
	for (int i = 0; i < 4; i++)
		score[n][i] = 0;
	KVK_UNROLL
	for (int d = 0; d < S::DK; d += 32) {
		uint32_t a[2][4], b[4];

		kvk_load_4_matrices(a[0], q_row + d);
		kvk_load_4_matrices(a[1], q_row + d + 16);
		KVK_UNROLL
		for (int n = 0; n < S::WARP_KEYS / 8; n++) {
			kvk_load_4_matrices(b, k_row + n * 8 * S::Q_PITCH + d);
			S::FORMAT::multiply(score[n], a[0], b);
			S::FORMAT::multiply(score[n], a[1], b + 2);
		}
	}
}

/* Scales; -INF where the key is none or the row doesn't see it. `first`: the tile's first key. */
template <class S>
KVK_DEVICE void kvk_tile_mask(const kvk_tile_shared<S> &sm, const kvk_tile_state<S> &state,
			      const kvk_tile_place<S> &at, int32_t t, int64_t first, float scale,
			      float (&score)[S::WARP_KEYS / 8][4])
{
	KVK_UNROLL
	for (int n = 0; n < S::WARP_KEYS / 8; n++)
		KVK_UNROLL
	for (int i = 0; i < 4; i++) {
		const int32_t key = S::WARP_KEYS * at.c + 8 * n + at.lane % 4 * 2 + i % 2;
		const bool live = sm.k_at[t % 3][key] != KVK_NO_KEY && first + key < state.visible[i / 2];

		score[n][i] = live ? score[n][i] * scale : -KVK_INFINITY;
	}
}

/* Leaves each row's largest score of this warp's keys in shared memory. */
template <class S>
KVK_DEVICE void kvk_tile_offer_max(kvk_tile_shared<S> &sm, const kvk_tile_place<S> &at,
				   const float (&score)[S::WARP_KEYS / 8][4])
{
	KVK_UNROLL
	for (int h = 0; h < 2; h++) {
		float max = fmaxf(score[0][2 * h], score[0][2 * h + 1]);

		KVK_UNROLL
		for (int n = 1; n < S::WARP_KEYS / 8; n++)
			max = fmaxf(max, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
		max = fmaxf(max, kvk_shuffle_xor_f32(max, 1));
		max = fmaxf(max, kvk_shuffle_xor_f32(max, 2));
		if (at.lane % 4 == 0)
			sm.max[at.c][at.row(h)] = max;
	}
}

/* Two neighbours of P at `place`. */
template <class S>
KVK_DEVICE void kvk_tile_put_weights(kvk_tile_shared<S> &sm, int32_t place, float low, float high)
{
	const uint32_t pair = S::FORMAT::pack(low, high);

	kvk_store4(&sm.p[0][place], pair);
	if (S::P_PARTS > 1)
		kvk_store4(
			&sm.p[S::P_PARTS - 1][place],
			S::FORMAT::pack(low - S::FORMAT::widen(pair), high - S::FORMAT::widen(pair >> 16)));
}

/*
 * Raises the maximum, turns scores into P in shared memory, adds up its sum; what is there already shrinks.
 */
template <class S>
KVK_DEVICE void kvk_tile_weigh(kvk_tile_shared<S> &sm, kvk_tile_state<S> &state, const kvk_tile_place<S> &at,
			       float (&score)[S::WARP_KEYS / 8][4])
{
	KVK_UNROLL
	for (int h = 0; h < 2; h++) {
		float max = state.max[h];
		float factor;

		KVK_UNROLL
		for (int c = 0; c < S::CW; c++)
			max = fmaxf(max, sm.max[c][at.row(h)]);
		factor = kvk_exp2(state.max[h] - max);
		state.max[h] = max;
		state.sum[h] *= factor;
		KVK_UNROLL
		for (int n = 0; n < S::WARP_VALUES / 8; n++) {
			state.out[n][2 * h] *= factor;
			state.out[n][2 * h + 1] *= factor;
		}
		KVK_UNROLL
		for (int n = 0; n < S::WARP_KEYS / 8; n++) {
			const float low = kvk_exp2(score[n][2 * h] - max);
			const float high = kvk_exp2(score[n][2 * h + 1] - max);

			state.sum[h] += low + high;
			kvk_tile_put_weights(
				sm, S::p_place(at.row(h), S::WARP_KEYS * at.c + 8 * n + at.lane % 4 * 2), low,
				high);
		}
	}
}

/*
 * Keys that only some rows see: what is infinite or NaN in their values must not reach the others by 0 *
 * NaN, so it becomes zero. For the rows that do see it the scores have said so already where key and value
 * are one.
 */
template <class S> KVK_DEVICE void kvk_tile_scrub(uint16_t *v)
{
	for (int32_t i = kvk_thread(); i < S::KEYS * S::DV; i += S::THREADS) {
		uint16_t *value = v + S::v_place(i / S::DV, i % S::DV);

		if ((*value & S::FORMAT::EXPONENT) == S::FORMAT::EXPONENT)
			*value = 0;
	}
}

template <class S>
KVK_DEVICE void kvk_tile_add_values(const kvk_tile_shared<S> &sm, const uint16_t *v, kvk_tile_state<S> &state,
				    const kvk_tile_place<S> &at)
{
	const int32_t p_row = (16 * at.r + at.lane % 16) * S::P_PITCH + at.lane / 16 * 8;
	/* Lane i addresses key i % 16, and the first or second eight of sixteen values. */
	const uint16_t *v_row = v + at.lane % 16 * S::V_PITCH + S::WARP_VALUES * at.c + at.lane / 16 * 8;

	KVK_UNROLL
	for (int key = 0; key < S::KEYS; key += 16) {
		uint32_t a[S::P_PARTS][4];

		KVK_UNROLL
		for (int part = 0; part < S::P_PARTS; part++)
			kvk_load_4_matrices(a[part], sm.p[part] + p_row + key);
		KVK_UNROLL
		for (int n = 0; n < S::WARP_VALUES / 16; n++) {
			uint32_t b[4];

			kvk_load_4_matrices_transposed(b, v_row + key * S::V_PITCH + 16 * n);
			KVK_UNROLL
			for (int part = 0; part < S::P_PARTS; part++) {
				S::FORMAT::multiply(state.out[2 * n], a[part], b);
				S::FORMAT::multiply(state.out[2 * n + 1], a[part], b + 2);
			}
		}
	}
}

template <class S, class SOURCE>
KVK_DEVICE void kvk_tile_begin(kvk_tile_shared<S> &sm, kvk_tile_state<S> &state, const SOURCE &source,
			       const kvk_tile_place<S> &at, int32_t begin, int32_t end)
{
	KVK_UNROLL
	for (int n = 0; n < S::WARP_VALUES / 8; n++)
		KVK_UNROLL
	for (int i = 0; i < 4; i++)
		state.out[n][i] = 0;
	KVK_UNROLL
	for (int h = 0; h < 2; h++) {
		state.max[h] = -1e30f;
		state.sum[h] = 0;
		state.visible[h] = source.visible(at.row(h));
	}
	kvk_tile_find(sm, source, begin, end, 0);
	kvk_tile_find(sm, source, begin, end, 1);
	kvk_block_sync();
	kvk_tile_load_queries(sm, source);
	kvk_tile_load(sm, source, 0);
	kvk_copy_commit();
}

/*
 * The whole sum of each row: over the lanes of a quad, then over the warps of the row, always in one order.
 */
template <class S>
KVK_DEVICE void kvk_tile_finish(kvk_tile_shared<S> &sm, kvk_tile_state<S> &state, const kvk_tile_place<S> &at)
{
	KVK_UNROLL
	for (int h = 0; h < 2; h++) {
		float sum = state.sum[h];

		sum += kvk_shuffle_xor_f32(sum, 1);
		sum += kvk_shuffle_xor_f32(sum, 2);
		if (at.lane % 4 == 0)
			sm.sum[at.c][at.row(h)] = sum;
	}
	kvk_block_sync();
	KVK_UNROLL
	for (int h = 0; h < 2; h++) {
		float sum = 0;

		KVK_UNROLL
		for (int c = 0; c < S::CW; c++)
			sum += sm.sum[c][at.row(h)];
		state.sum[h] = sum;
	}
}

/* Products by the engine of the shape. */
template <class S>
KVK_DEVICE void kvk_tile_multiply_keys(const kvk_tile_shared<S> &sm, const uint16_t *k,
				       const kvk_tile_place<S> &at, float (&score)[S::WARP_KEYS / 8][4])
{
	if constexpr (S::GROUPS)
		kvk_group_scores<S>(sm.q, k, at.c, score);
	else
		kvk_tile_scores(sm, k, at, score);
}

template <class S>
KVK_DEVICE void kvk_tile_multiply_values(const kvk_tile_shared<S> &sm, const uint16_t *v,
					 kvk_tile_state<S> &state, const kvk_tile_place<S> &at)
{
	if constexpr (S::GROUPS)
		kvk_group_values<S>(sm.p[0], v, at.c, state.out);
	else
		kvk_tile_add_values(sm, v, state, at);
}

/* In front of a barrier behind which shared memory is multiplied. */
template <class S> KVK_DEVICE void kvk_tile_hand_over(void)
{
	if constexpr (S::GROUPS)
		kvk_shared_fence();
}

/* What this thread asked for of tile `t`, and what came in boxes, is there. */
template <class S> KVK_DEVICE void kvk_tile_wait(kvk_tile_shared<S> &sm, kvk_tile_state<S> &state, int32_t t)
{
	kvk_copy_wait<0>();
	kvk_tile_hand_over<S>();
	if constexpr (S::GROUPS)
		if (sm.box[t % 3].page != KVK_NO_KEY) {
			kvk_phase_wait(&sm.full[t % 2], state.phases >> t % 2 & 1);
			state.phases ^= 1u << t % 2;
		}
}

/* One tile: it has been asked for; the next one is asked for here. */
template <class S, class SOURCE>
KVK_DEVICE void kvk_tile_step(kvk_tile_shared<S> &sm, kvk_tile_state<S> &state, const SOURCE &source,
			      const kvk_tile_place<S> &at, int32_t begin, int32_t end, int32_t t)
{
	const int64_t first = begin + static_cast<int64_t>(t) * S::KEYS;
	const bool more = first + S::KEYS < end;
	float score[S::WARP_KEYS / 8][4];
	uint16_t *k = sm.k[t % S::STAGES];
	uint16_t *v = k;

	if constexpr (S::OWN_V)
		v = sm.v[t % S::STAGES];
	kvk_tile_wait(sm, state, t);
	kvk_block_sync(); /* the tile is there, and nobody is in the one before */
	if constexpr (S::FP8_ROWS) {
		kvk_tile_widen(sm);
		kvk_block_sync();
	}
	if (more)
		kvk_tile_load(sm, source, t + 1);
	kvk_copy_commit();
	kvk_tile_find(sm, source, begin, end, t + 2);
	kvk_tile_multiply_keys(sm, k, at, score);
	kvk_tile_mask(sm, state, at, t, first, source.scale(), score);
	kvk_tile_offer_max(sm, at, score);
	kvk_block_sync();
	kvk_tile_weigh(sm, state, at, score);
	if (first + S::KEYS > source.seen_by_all())
		kvk_tile_scrub<S>(v);
	kvk_tile_hand_over<S>();
	kvk_block_sync();
	kvk_tile_multiply_values(sm, v, state, at);
}

/*
 * Attends to the keys [begin, end) of `source`; all threads of the block. Rows' results: state.out, not yet
 * divided by state.sum, and state.max. Ends with a barrier, so that shared memory may be used again.
 *
 * A source says: queries(), query(row) (NULL: no such row), keys(), values(), find(key, k, v) (byte
 * offsets, left alone for a key that doesn't count), visible(row), seen_by_all() (keys below it are visible
 * to every row), scale(); for a shape of warpgroups also map and box(key) (of the tile that begins there).
 */
template <class S, class SOURCE>
KVK_DEVICE void kvk_tile_attend(kvk_tile_shared<S> &sm, kvk_tile_state<S> &state, const SOURCE &source,
				int32_t begin, int32_t end)
{
	const kvk_tile_place<S> at;

	kvk_tile_begin(sm, state, source, at, begin, end);
	KVK_NO_UNROLL
	for (int32_t t = 0; begin + static_cast<int64_t>(t) * S::KEYS < end; t++)
		kvk_tile_step(sm, state, source, at, begin, end, t);
	kvk_copy_wait<0>();
	/* Zeros asked for where there was no tile: the next call may have boxes for their place. */
	kvk_tile_hand_over<S>();
	kvk_block_sync();
	kvk_tile_finish(sm, state, at);
}

#endif
