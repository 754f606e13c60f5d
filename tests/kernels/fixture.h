/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random paged caches with poison everywhere: every byte of a cache that no token owns is 0xff, a NaN in
 * each dtype; table entries past a row's length alternate -1, 2147483647 and 2147480000; outputs start as
 * NaN.
 */
#ifndef KVPOOL_TEST_FIXTURE_H
#define KVPOOL_TEST_FIXTURE_H

#include <kvpool/kernels.h>

#include "support.h"

/* Whether a sanitizer watches or the processor is emulated, which makes everything many times slower. */
#if defined(KVT_EMULATED)
#define KVT_INSTRUMENTED 1
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVT_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVT_INSTRUMENTED 1
#endif
#endif
#ifndef KVT_INSTRUMENTED
#define KVT_INSTRUMENTED 0
#endif

/* `count` elements, all bytes 0xff. Every allocation here ends the test on failure. */
void *kvt_poison(int64_t count, size_t element_bytes);

/* Uniform in [-1, 1). */
float kvt_uniform(struct kvt_rng *rng);
int32_t kvt_between(struct kvt_rng *rng, int32_t low, int32_t high);

/* `count` random elements in [-amplitude, amplitude) of bf16, f16, f32 or e4m3. */
void *kvt_values(struct kvt_rng *rng, uint32_t dtype, int64_t count, float amplitude);
void kvt_fill(struct kvt_rng *rng, void *array, uint32_t dtype, int64_t offset, int64_t count,
	      float amplitude);

/* A random KVK_MLA_FP8 row. */
void kvt_fill_fp8_row(struct kvt_rng *rng, unsigned char *row);

/* Which pages hold which sequence: a random permutation, three pages spare. */
struct kvt_paged {
	int32_t batch, pages, page_tokens, width;
	int32_t *table; /* [batch, width] */
	int32_t *lens;  /* [batch] */
};

void kvt_paged_open(struct kvt_paged *paged, struct kvt_rng *rng, const int32_t *lens, int32_t batch,
		    int32_t page_tokens);
void kvt_paged_close(struct kvt_paged *paged);
/* Element offset of token j of sequence r. */
int64_t kvt_paged_offset(const struct kvt_paged *paged, int32_t r, int32_t j, int64_t stride_page,
			 int64_t stride_token);

/* A whole dense MLA call. */
struct kvt_mla {
	struct kvt_paged paged;
	struct kvk_mla_dense_params params; /* out and lse belong to it as well */
	void *q, *kv;
	float *sink;
	float *out; /* f32 */
	float *lse;
	int64_t out_count, lse_count;
};

void kvt_mla_open(struct kvt_mla *mla, struct kvt_rng *rng, const int32_t *lens, int32_t batch, int32_t s_q,
		  int32_t heads, int32_t page_tokens, uint32_t kv_dtype);
void kvt_mla_close(struct kvt_mla *mla);

/* How K and V lie. */
enum kvt_layout { KVT_NHD, KVT_HND, KVT_PACKED, KVT_SPLIT, KVT_LAYOUTS };

/* A whole dense GQA call, s_q queries for each sequence. */
struct kvt_gqa {
	struct kvt_paged paged;
	struct kvk_gqa_dense_params params;
	void *q, *cache; /* one allocation holds K and V */
	float *out;
	float *lse;
	int64_t out_count, lse_count;
};

void kvt_gqa_open(struct kvt_gqa *gqa, struct kvt_rng *rng, const int32_t *lens, int32_t batch, int32_t s_q,
		  int32_t kv_heads, int32_t group, int32_t head_dim, int32_t page_tokens, uint32_t kv_dtype,
		  enum kvt_layout layout);
void kvt_gqa_close(struct kvt_gqa *gqa);

/* The dense call's fields, over `selected` blocks. */
struct kvk_msa_sparse_params kvt_gqa_sparse(const struct kvk_gqa_dense_params *d, const int32_t *selected,
					    int32_t topk, int32_t block);

#endif
