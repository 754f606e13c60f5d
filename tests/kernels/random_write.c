/* SPDX-License-Identifier: Apache-2.0 */
/* Random cache writes: the whole cache, padding between rows and canaries included, is the reference's bit for bit. */
#include "random.h"

#include "dtype.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of every size, infinities and NaN among them. */
static void fill_anything(struct kvt_rng *rng, void *array, uint32_t dtype, int64_t count)
{
	static const float special[] = {NAN, -NAN, INFINITY, -INFINITY, 0, -0.0f, 448, 464, -1e30f, 1e-40f};

	for (int64_t i = 0; i < count; i++) {
		const int what = kvt_between(rng, 0, 40);

		kvk_store(array, dtype, i,
			  what ? ldexpf(kvt_uniform(rng), kvt_between(rng, -20, 12))
			       : special[kvt_between(rng, 0, 9)]);
	}
}

/* Distinct slots in random order, some of them padding. */
static void fill_slots(struct kvt_rng *rng, int64_t *slots, int32_t tokens, int32_t pages,
		       int32_t page_tokens)
{
	const int32_t count = pages * page_tokens;
	int32_t *order = kvt_poison(count, sizeof(*order));

	for (int32_t i = 0; i < count; i++) {
		const int32_t at = kvt_between(rng, 0, i);

		order[i] = order[at];
		order[at] = i;
	}
	for (int32_t t = 0; t < tokens; t++)
		slots[t] = kvt_between(rng, 0, 7) ? order[t] : -1 - kvt_between(rng, 0, 5);
	free(order);
}

struct writing {
	bool is_mla;
	struct kvk_mla_write_params mla;
	struct kvk_kv_write_params kv;
	char *cache, *want;
	size_t bytes;
	char text[128];
};

static int call_writing(void *context, const struct version *version, const struct kvk_threads *threads)
{
	const struct writing *writing = context;
	struct kvk_mla_write_params mla = writing->mla;
	struct kvk_kv_write_params kv = writing->kv;

	mla.threads = kv.threads = threads;
	if (writing->is_mla)
		return version->mla_write ? version->mla_write(&mla) : -ENOSYS;
	return version->kv_write ? version->kv_write(&kv) : -ENOSYS;
}

static void judge_writing(void *context, const struct version *version)
{
	const struct writing *writing = context;

	for (size_t i = 0; i < writing->bytes; i++)
		if (writing->cache[i] != writing->want[i])
			fail_msg("%s: %s: byte %zu is %#x, not %#x", writing->text, version->name, i,
				 (unsigned char)writing->cache[i], (unsigned char)writing->want[i]);
}

static void check_writing(struct kvt_rng *rng, struct writing *writing)
{
	random_check(rng, &(const struct subject){.text = writing->text,
						  .context = writing,
						  .call = call_writing,
						  .judge = judge_writing,
						  .outputs = {{writing->cache, writing->bytes}}});
	free(writing->cache);
	free(writing->want);
}

/* The narrow slots of a call, or the wide ones as they are. */
static const void *slots_of(int64_t *wide, int32_t tokens, uint32_t slot_bytes)
{
	int32_t *narrow = (int32_t *)wide;

	for (int32_t t = 0; t < tokens && slot_bytes == 4; t++)
		narrow[t] = (int32_t)wide[t];
	return wide;
}

void random_mla_write(struct kvt_rng *rng)
{
	static const uint32_t cache_dtypes[] = {KVK_BF16, KVK_F16, KVK_F32, KVK_MLA_FP8, KVK_MLA_FP8};

	for (int i = random_cases(60); i > 0; i--) {
		const uint32_t src_dtype = random_plain_dtype(rng);
		const uint32_t dtype =
			kvt_between(rng, 0, 1) ? src_dtype : cache_dtypes[kvt_between(rng, 0, 4)];
		const int32_t page_tokens = random_page_tokens(rng) % 40 + 1;
		const int32_t pages = kvt_between(rng, 1, 4);
		const int32_t tokens = kvt_between(rng, 1, pages * page_tokens);
		const int64_t row = dtype == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH;
		const int64_t token = row + kvt_between(rng, 0, 1) * kvt_between(rng, 1, 9);
		const int64_t page = page_tokens * token + kvt_between(rng, 0, 5);
		void *latent = kvt_poison((int64_t)tokens * KVK_MLA_LATENT, 4);
		void *rope = kvt_poison((int64_t)tokens * KVK_MLA_ROPE, 4);
		int64_t *slots = kvt_poison(tokens, sizeof(*slots));
		const uint32_t slot_bytes = kvt_between(rng, 0, 1) ? 4 : 8;
		struct writing writing = {.is_mla = true,
					  .bytes = (size_t)(pages * page) * kvk_dtype_bytes(dtype)};

		fill_anything(rng, latent, src_dtype, (int64_t)tokens * KVK_MLA_LATENT);
		fill_anything(rng, rope, src_dtype, (int64_t)tokens * KVK_MLA_ROPE);
		fill_slots(rng, slots, tokens, pages, page_tokens);
		writing.cache = kvt_poison((int64_t)writing.bytes, 1);
		writing.want = kvt_poison((int64_t)writing.bytes, 1);
		writing.mla = (struct kvk_mla_write_params){.size = sizeof(writing.mla),
							    .tokens = tokens,
							    .page_tokens = page_tokens,
							    .pages = pages,
							    .slot_bytes = slot_bytes,
							    .src_dtype = src_dtype,
							    .kv_dtype = dtype,
							    .latent = latent,
							    .rope = rope,
							    .slots = slots_of(slots, tokens, slot_bytes),
							    .kv = writing.want,
							    .kv_stride_page = page,
							    .kv_stride_token = token};
		snprintf(writing.text, sizeof(writing.text),
			 "mla_write of %d, page %d, strides %lld %lld, dtypes %u %u", tokens, page_tokens,
			 (long long)page, (long long)token, src_dtype, dtype);
		assert_int_equal(kvk_mla_write_ref(&writing.mla), 0);
		writing.mla.kv = writing.cache;
		check_writing(rng, &writing);
		free(latent);
		free(rope);
		free(slots);
	}
}

/* K and V, in one allocation; NHD or HND. */
static void set_kv_layout(struct kvk_kv_write_params *p, char *cache, size_t half, bool hnd, int64_t gap)
{
	const int64_t row = p->head_dim + gap;

	p->k_cache = cache;
	p->v_cache = p->v ? cache + half : NULL;
	p->k_cache_stride_page = p->page_tokens * p->heads * row;
	p->k_cache_stride_token = hnd ? row : p->heads * row;
	p->k_cache_stride_head = hnd ? p->page_tokens * row : row;
	p->v_cache_stride_page = p->k_cache_stride_page;
	p->v_cache_stride_token = p->k_cache_stride_token;
	p->v_cache_stride_head = p->k_cache_stride_head;
}

void random_kv_write(struct kvt_rng *rng)
{
	static const uint32_t cache_dtypes[] = {KVK_BF16, KVK_F16, KVK_F32, KVK_E4M3};

	for (int i = random_cases(80); i > 0; i--) {
		const uint32_t src_dtype = random_plain_dtype(rng);
		const uint32_t dtype =
			kvt_between(rng, 0, 1) ? src_dtype : cache_dtypes[kvt_between(rng, 0, 3)];
		const int32_t heads = kvt_between(rng, 1, 5);
		const int32_t dim = kvt_between(rng, 0, 1) ? 128 : kvt_between(rng, 1, 150);
		const int32_t page_tokens = random_page_tokens(rng) % 40 + 1;
		const int32_t pages = kvt_between(rng, 1, 4);
		const int32_t tokens = kvt_between(rng, 1, pages * page_tokens);
		const int64_t gap = kvt_between(rng, 0, 1) * kvt_between(rng, 1, 9);
		const int64_t elements = (int64_t)tokens * heads * dim;
		const bool hnd = kvt_between(rng, 0, 1);
		const uint32_t slot_bytes = kvt_between(rng, 0, 1) ? 4 : 8;
		const size_t half =
			(size_t)(pages * page_tokens * heads * (dim + gap)) * kvk_dtype_bytes(dtype);
		void *k = kvt_poison(elements, 4);
		void *v = kvt_poison(elements, 4);
		int64_t *slots = kvt_poison(tokens, sizeof(*slots));
		struct writing writing = {.bytes = 2 * half};

		fill_anything(rng, k, src_dtype, elements);
		fill_anything(rng, v, src_dtype, elements);
		fill_slots(rng, slots, tokens, pages, page_tokens);
		writing.cache = kvt_poison((int64_t)writing.bytes, 1);
		writing.want = kvt_poison((int64_t)writing.bytes, 1);
		writing.kv = (struct kvk_kv_write_params){.size = sizeof(writing.kv),
							  .tokens = tokens,
							  .heads = heads,
							  .head_dim = dim,
							  .page_tokens = page_tokens,
							  .pages = pages,
							  .slot_bytes = slot_bytes,
							  .src_dtype = src_dtype,
							  .cache_dtype = dtype,
							  .k = k,
							  .v = kvt_between(rng, 0, 2) ? v : NULL,
							  .slots = slots_of(slots, tokens, slot_bytes)};
		snprintf(writing.text, sizeof(writing.text),
			 "kv_write of %d, %d heads of %d, page %d, %s, dtypes %u %u", tokens, heads, dim,
			 page_tokens, hnd ? "HND" : "NHD", src_dtype, dtype);
		set_kv_layout(&writing.kv, writing.want, half, hnd, gap);
		assert_int_equal(kvk_kv_write_ref(&writing.kv), 0);
		set_kv_layout(&writing.kv, writing.cache, half, hnd, gap);
		check_writing(rng, &writing);
		free(k);
		free(v);
		free(slots);
	}
}
