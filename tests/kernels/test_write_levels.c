/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache writes at every level of this machine against the reference, bit for bit and over the whole cache: what no
 * token owns keeps its canary. Every code of every format is converted; shapes, strides, alignments and slots are random,
 * below and above the size from which a call goes past the cache.
 */
#include "cpu/cpu.h"
#include "fixture.h"
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define PLACES 9 /* bytes that a cache may begin off a line's start, and one */

static struct kvt_rng rng;

/* A thread pool that does its tasks one after the other: allowed, as these do not wait for each other. */
static void run_tasks(void *context, kvk_task_fn task, void *arg)
{
	for (uint32_t i = 0; i < *(const uint32_t *)context; i++)
		task(arg, i);
}

static uint32_t thread_count = 3;
static const struct kvk_threads threads = {
	.size = sizeof(threads), .count = 3, .context = &thread_count, .run = run_tasks};

static int mla_write_at(const struct kvk_mla_write_params *params, int level)
{
	struct kvk_mla_write_params ready;
	int ret = kvk_prepare_mla_write(params, &ready);

	if (ret > 0)
		kvk_mla_write_cpu(&ready, (enum kvk_level)level);
	return ret < 0 ? ret : 0;
}

static int kv_write_at(const struct kvk_kv_write_params *params, int level)
{
	struct kvk_kv_write_params ready;
	int ret = kvk_prepare_kv_write(params, &ready);

	if (ret > 0)
		kvk_kv_write_cpu(&ready, (enum kvk_level)level);
	return ret < 0 ? ret : 0;
}

/* Two caches of the same bytes: the reference's, and one that begins `off` bytes after a line's start. */
struct caches {
	size_t bytes;
	unsigned char *want, *memory, *got;
};

static struct caches open_caches(int64_t bytes, size_t off)
{
	struct caches caches = {.bytes = (size_t)bytes};

	caches.want = kvt_poison(bytes, 1);
	caches.memory = aligned_alloc(64, ((size_t)bytes + off + 127) / 64 * 64);
	assert_non_null(caches.memory);
	memset(caches.memory, 0xff, ((size_t)bytes + off + 127) / 64 * 64);
	caches.got = caches.memory + off;
	return caches;
}

static void check_caches(struct caches *caches, const char *what, int level)
{
	if (memcmp(caches->want, caches->got, caches->bytes) != 0)
		for (size_t i = 0; i < caches->bytes; i++)
			if (caches->want[i] != caches->got[i])
				fail_msg("%s at level %s: byte %zu is %02x, not %02x", what,
					 kvk_level_text((enum kvk_level)level), i, caches->got[i],
					 caches->want[i]);
	for (size_t i = 0; i < 16; i++)
		assert_int_equal(caches->got[caches->bytes + i], 0xff);
	memset(caches->got, 0xff, caches->bytes);
}

static void close_caches(struct caches *caches)
{
	free(caches->want);
	free(caches->memory);
}

static int32_t between(int32_t low, int32_t high)
{
	return kvt_between(&rng, low, high);
}

/* Any bits: NaN payloads, infinities, subnormals. f32 is often near the narrower formats' limits. */
static void random_bits(void *array, uint32_t dtype, int64_t count)
{
	static const uint32_t edges[] = {0x43e00000, 0x43e80000, 0x3c800000, 0x38800000, 0x477ff000,
					 0x47800000, 0x33000000, 0x3a800000, 0x7f800000, 0x7f800001,
					 0x7fffffff, 0x007fffff, 0x00000001, 0x7f7fffff, 0x3f808000};
	unsigned char *bytes = array;

	for (int64_t i = 0; i < count * (int64_t)kvk_dtype_bytes(dtype); i += 4) {
		uint32_t bits = (uint32_t)kvt_rng_next(&rng);

		if (dtype == KVK_F32 && kvt_rng_below(&rng, 2))
			bits = edges[kvt_rng_below(&rng, 15)] + (bits & 0x80000003u) - 1;
		memcpy(bytes + i, &bits,
		       (size_t)(count * (int64_t)kvk_dtype_bytes(dtype) - i < 4
					? count * (int64_t)kvk_dtype_bytes(dtype) - i
					: 4));
	}
}

/* ------------------------------------------------------------------ codes */

static void check_codes(const void *src, uint32_t from, uint32_t to, int32_t count)
{
	static const int32_t slots[] = {0};
	struct caches caches = open_caches((int64_t)count * (int64_t)kvk_dtype_bytes(to), 0);
	struct kvk_kv_write_params p = {.size = sizeof(p),
					.tokens = 1,
					.heads = 1,
					.head_dim = count,
					.page_tokens = 1,
					.pages = 1,
					.slot_bytes = 4,
					.src_dtype = from,
					.cache_dtype = to,
					.k = src,
					.slots = slots};

	p.k_cache = caches.want;
	assert_int_equal(kvk_kv_write_ref(&p), 0);
	p.k_cache = caches.got;
	for (int level = 0; level < KVK_LEVELS; level++)
		if (kvk_level_usable((enum kvk_level)level)) {
			assert_int_equal(kv_write_at(&p, level), 0);
			check_caches(&caches, "codes", level);
		}
	close_caches(&caches);
}

static void every_code_is_converted_as_the_reference_does(void **state)
{
	enum { CODES = 65536, FLOATS = 300001 };
	uint16_t *codes = malloc(CODES * sizeof(*codes));
	float *floats = malloc((FLOATS + 1) * sizeof(*floats));

	(void)state;
	for (int i = 0; i < CODES; i++)
		codes[i] = (uint16_t)i;
	random_bits(floats, KVK_F32, FLOATS);
	for (uint32_t to = KVK_BF16; to <= KVK_E4M3; to++) {
		check_codes(codes, KVK_BF16, to, CODES);
		check_codes(codes, KVK_F16, to, CODES);
		check_codes(floats, KVK_F32, to, FLOATS);
	}
	free(codes);
	free(floats);
}

/* ------------------------------------------------------------------ shapes */

/* Distinct slots in random order, a part of them -1. */
static void *random_slots(int32_t tokens, int32_t places, uint32_t slot_bytes)
{
	int32_t *order = malloc((size_t)(places + 1) * sizeof(*order));
	char *slots = malloc((size_t)(tokens + 1) * slot_bytes);

	for (int32_t i = 0; i < places; i++) {
		int32_t j = between(0, i);

		order[i] = order[j];
		order[j] = i;
	}
	for (int32_t t = 0; t < tokens; t++) {
		int64_t wide = kvt_rng_below(&rng, 8) ? order[t] : -1 - (int64_t)kvt_rng_below(&rng, 2);
		int32_t narrow = (int32_t)wide;

		memcpy(slots + (size_t)t * slot_bytes, slot_bytes == 4 ? (void *)&narrow : (void *)&wide,
		       slot_bytes);
	}
	free(order);
	return slots;
}

static void run_mla(struct kvk_mla_write_params *p, struct caches *caches)
{
	p->kv = caches->want;
	assert_int_equal(kvk_mla_write_ref(p), 0);
	p->kv = caches->got;
	for (int level = 0; level < KVK_LEVELS; level++)
		for (int shared = 0; kvk_level_usable((enum kvk_level)level) && shared < 2; shared++) {
			p->threads = shared ? &threads : NULL;
			assert_int_equal(mla_write_at(p, level), 0);
			check_caches(caches, "mla_write", level);
		}
}

static void mla_case(int32_t tokens, uint32_t from, uint32_t to, bool tight)
{
	const int64_t width = to == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH;
	struct kvk_mla_write_params p = {.size = sizeof(p),
					 .tokens = tokens,
					 .page_tokens = between(1, 70),
					 .slot_bytes = kvt_rng_below(&rng, 2) ? 4 : 8,
					 .src_dtype = from,
					 .kv_dtype = to,
					 .latent_stride = KVK_MLA_LATENT + (tight ? 0 : between(0, 9)),
					 .rope_stride = KVK_MLA_ROPE + (tight ? 0 : between(0, 9)),
					 .kv_stride_token = width + (tight ? 0 : between(0, 40))};
	const int64_t element = (int64_t)kvk_dtype_bytes(to);
	void *latent = malloc((size_t)(tokens * p.latent_stride) * kvk_dtype_bytes(from) + 4);
	void *rope = malloc((size_t)(tokens * p.rope_stride) * kvk_dtype_bytes(from) + 4);
	void *slots;
	struct caches caches;

	p.pages = tokens / p.page_tokens + 2;
	p.kv_stride_page = p.kv_stride_token * p.page_tokens + (tight ? 0 : between(0, 30));
	random_bits(latent, from, tokens * p.latent_stride);
	random_bits(rope, from, tokens * p.rope_stride);
	slots = random_slots(tokens, p.pages * p.page_tokens, p.slot_bytes);
	caches = open_caches(p.pages * p.kv_stride_page * element,
			     tight ? 0 : (size_t)between(0, PLACES) * (size_t)element);
	p.latent = latent;
	p.rope = rope;
	p.slots = slots;
	run_mla(&p, &caches);
	close_caches(&caches);
	free(slots);
	free(latent);
	free(rope);
}

static const uint32_t plain[] = {KVK_BF16, KVK_F16, KVK_F32};

static void mla_rows_are_the_reference_s(void **state)
{
	static const uint32_t formats[] = {KVK_BF16, KVK_F16, KVK_F32, KVK_MLA_FP8};

	(void)state;
	for (int from = 0; from < 3; from++)
		for (int to = 0; to < 4; to++) {
			for (int round = 0; round < 12; round++)
				mla_case(between(1, 60), plain[from], formats[to], round % 2);
			/* Past the cache. */
			mla_case(700, plain[from], formats[to], kvt_rng_below(&rng, 2));
		}
	mla_case(700, KVK_BF16, KVK_BF16, true);
	mla_case(700, KVK_BF16, KVK_BF16, false);
}

static void run_kv(struct kvk_kv_write_params *p, struct caches *k, struct caches *v)
{
	p->k_cache = k->want;
	p->v_cache = p->v ? v->want : NULL;
	assert_int_equal(kvk_kv_write_ref(p), 0);
	p->k_cache = k->got;
	p->v_cache = p->v ? v->got : NULL;
	for (int level = 0; level < KVK_LEVELS; level++)
		for (int shared = 0; kvk_level_usable((enum kvk_level)level) && shared < 2; shared++) {
			p->threads = shared ? &threads : NULL;
			assert_int_equal(kv_write_at(p, level), 0);
			check_caches(k, "kv_write of k", level);
			check_caches(v, "kv_write of v", level);
		}
}

/* NHD, HND or any strides between. */
static void choose_layout(struct kvk_kv_write_params *p, bool tight)
{
	const int64_t gap = tight ? 0 : between(0, 9);
	const int64_t row = p->head_dim + gap;
	const bool hnd = kvt_rng_below(&rng, 2);

	p->k_cache_stride_token = hnd ? row : row * p->heads;
	p->k_cache_stride_head = hnd ? row * p->page_tokens : row;
	p->k_cache_stride_page = row * p->heads * p->page_tokens + gap;
	p->v_cache_stride_token = p->k_cache_stride_token;
	p->v_cache_stride_head = p->k_cache_stride_head;
	p->v_cache_stride_page = p->k_cache_stride_page;
	p->k_stride_head = p->head_dim + (tight ? 0 : between(0, 3));
	p->k_stride_token = p->k_stride_head * p->heads + (tight ? 0 : between(0, 3));
	p->v_stride_head = p->k_stride_head;
	p->v_stride_token = p->k_stride_token;
}

static void kv_case(int32_t tokens, int32_t heads, int32_t head_dim, uint32_t from, uint32_t to, bool tight)
{
	struct kvk_kv_write_params p = {.size = sizeof(p),
					.tokens = tokens,
					.heads = heads,
					.head_dim = head_dim,
					.page_tokens = between(1, 70),
					.slot_bytes = kvt_rng_below(&rng, 2) ? 4 : 8,
					.src_dtype = from,
					.cache_dtype = to};
	const size_t element = kvk_dtype_bytes(to);
	void *slots, *k, *v;
	struct caches k_caches, v_caches;
	size_t bytes;

	p.pages = tokens / p.page_tokens + 2;
	choose_layout(&p, tight);
	bytes = (size_t)(tokens * p.k_stride_token) * kvk_dtype_bytes(from);
	k = malloc(bytes + 4);
	v = malloc(bytes + 4);
	random_bits(k, from, tokens * p.k_stride_token);
	random_bits(v, from, tokens * p.k_stride_token);
	slots = random_slots(tokens, p.pages * p.page_tokens, p.slot_bytes);
	bytes = (size_t)(p.pages * p.k_cache_stride_page) * element;
	k_caches = open_caches((int64_t)bytes, tight ? 0 : (size_t)between(0, PLACES) * element);
	v_caches = open_caches((int64_t)bytes, 0);
	p.k = k;
	p.v = kvt_rng_below(&rng, 3) ? v : NULL;
	p.slots = slots;
	run_kv(&p, &k_caches, &v_caches);
	close_caches(&k_caches);
	close_caches(&v_caches);
	free(slots);
	free(k);
	free(v);
}

static void kv_rows_are_the_reference_s(void **state)
{
	(void)state;
	for (int from = 0; from < 3; from++)
		for (uint32_t to = KVK_BF16; to <= KVK_E4M3; to++) {
			for (int round = 0; round < 20; round++)
				kv_case(between(1, 40), between(1, 5), between(1, 700), plain[from], to,
					round % 2);
			kv_case(900, 4, 128, plain[from], to, true);
			kv_case(500, 3, 300, plain[from], to, false);
		}
	/* A whole line apart: K alone, NHD and HND by chance. */
	for (int round = 0; round < 4; round++)
		kv_case(1500, 4, 128, KVK_BF16, KVK_BF16, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_is_converted_as_the_reference_does),
		cmocka_unit_test(mla_rows_are_the_reference_s),
		cmocka_unit_test(kv_rows_are_the_reference_s),
	};

	kvt_watchdog(250);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
