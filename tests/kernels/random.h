/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls of every operation with a fast version: poison in every byte that no token owns, in outputs and in
 * scratch. Each version answers as the reference does, and bit for bit the same with any threads, when asked again, and
 * for one sequence alone.
 */
#ifndef KVPOOL_TEST_RANDOM_H
#define KVPOOL_TEST_RANDOM_H

#include "fixture.h"
#include "versions.h"

/* A call of some operation, as the driver sees it. */
struct subject {
	const char *text; /* what it is, for a failure */
	void *context;
	/* Version `version` of it with these threads; -ENOSYS: there is none. */
	int (*call)(void *context, const struct version *version, const struct kvk_threads *threads);
	/* Fails the test when the outputs are not the reference's. */
	void (*judge)(void *context, const struct version *version);
	/* Fails the test when a sequence alone gives other bits than `outputs` hold. */
	void (*alone)(void *context, const struct version *version);
	struct {
		void *at;
		size_t bytes;
	} outputs[2];
};

void random_check(struct kvt_rng *rng, const struct subject *subject);

/* How much the reference may do for one case: rows of keys times heads. */
#if KVT_INSTRUMENTED
#define RANDOM_WORK 1500
#else
#define RANDOM_WORK 12000
#endif

/* Cases of each operation; $KVP_CASES multiplies them. */
int random_cases(int usual);

/* Up to four lengths up to `most`, a quarter of them 0. Returns how many. */
int32_t random_lens(struct kvt_rng *rng, int32_t lens[4], int32_t most);
int32_t random_page_tokens(struct kvt_rng *rng);
uint32_t random_plain_dtype(struct kvt_rng *rng);
/* f32 mostly: there the limits are tightest. */
uint32_t random_out_dtype(struct kvt_rng *rng);

/* Row `row` of [.., dim] as f32, and how far it may be from the reference's, relative to its largest magnitude. */
void random_load_row(float *to, const void *out, uint32_t dtype, int64_t row, int32_t dim);
double random_row_limit(uint32_t out_dtype);

void random_mla_dense(struct kvt_rng *rng);
void random_mla_sparse(struct kvt_rng *rng);
void random_gqa_dense(struct kvt_rng *rng);
void random_msa_sparse(struct kvt_rng *rng);
void random_msa_scores(struct kvt_rng *rng);
void random_msa_select(struct kvt_rng *rng);
void random_mla_write(struct kvt_rng *rng);
void random_kv_write(struct kvt_rng *rng);

#endif
