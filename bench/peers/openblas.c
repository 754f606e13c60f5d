/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA decode as most engines' CPU paths have it: a request's pages gathered into one f32 matrix, scores by sgemm,
 * softmax, outputs by sgemm. OpenBLAS is loaded when it is there.
 */
#include "peers.h"

#include <dlfcn.h>
#include <stddef.h>

#include "../../kernels/cpu/level.h"
#include "../kernel_case.h"
#include "../pool.h"

#define ROW_MAJOR 101
#define AS_IT_IS 111
#define TRANSPOSED 112
#define MAX_SAMPLES 64

KVK_LEVEL_TABLES(bench_peer_ops, bench_peer);

typedef void (*sgemm_fn)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
			 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

static sgemm_fn sgemm;
static void (*set_threads)(int threads);

static bool load(void)
{
	static bool tried;
	void *library;

	if (tried)
		return sgemm && set_threads;
	tried = true;
	library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return false;
	*(void **)&sgemm = dlsym(library, "cblas_sgemm");
	*(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
	return sgemm && set_threads;
}

struct work {
	const struct bench_peer_shape *shape;
	const struct bench_peer_ops *ops;
	const uint16_t *pool;
	const int32_t *ids;
	float *query, *keys, *scores, *out;
};

static void gather(const struct work *work, int32_t request)
{
	const int64_t page = (int64_t)BENCH_MLA_PAGE * KVK_MLA_WIDTH;
	const int32_t pages = work->shape->context / BENCH_MLA_PAGE;

	for (int32_t i = 0; i < pages; i++)
		work->ops->widen(work->keys + i * page, work->pool + work->ids[request * pages + i] * page,
				 page);
}

static void decode(const struct work *work)
{
	const int heads = work->shape->heads;
	const int context = work->shape->context;

	for (int32_t r = 0; r < work->shape->batch; r++) {
		gather(work, r);
		sgemm(ROW_MAJOR, AS_IT_IS, TRANSPOSED, heads, context, KVK_MLA_WIDTH, 1,
		      work->query + (ptrdiff_t)r * heads * KVK_MLA_WIDTH, KVK_MLA_WIDTH, work->keys,
		      KVK_MLA_WIDTH, 0, work->scores, context);
		work->ops->softmax(work->scores, heads, context, 0.0722f);
		sgemm(ROW_MAJOR, AS_IT_IS, AS_IT_IS, heads, KVK_MLA_LATENT, context, 1, work->scores, context,
		      work->keys, KVK_MLA_WIDTH, 0, work->out + (ptrdiff_t)r * heads * KVK_MLA_LATENT,
		      KVK_MLA_LATENT);
	}
}

static void open_work(struct work *work, const struct bench_peer_shape *shape)
{
	const size_t rows = (size_t)shape->batch * (size_t)shape->heads;
	const size_t elements = rows * KVK_MLA_WIDTH;
	const uint16_t *codes = bench_bf16(elements * 2);
	enum kvk_level level;

	*work = (struct work){
		.shape = shape,
		.ops = KVK_LEVEL_TABLE(bench_peer, kvk_level_choose(&level) ? KVK_LEVEL_SCALAR : level),
		.pool = bench_mla_pool(KVK_BF16),
		.ids = bench_shuffle(BENCH_POOL_TOKENS / BENCH_MLA_PAGE),
		.query = bench_memory(elements * sizeof(float)),
		.keys = bench_memory((size_t)shape->context * KVK_MLA_WIDTH * sizeof(float)),
		.scores = bench_memory((size_t)shape->heads * (size_t)shape->context * sizeof(float)),
		.out = bench_memory(rows * KVK_MLA_LATENT * sizeof(float))};
	work->ops->widen(work->query, codes, (int64_t)elements);
}

double bench_openblas_mla(const struct bench_peer_shape *shape, uint32_t threads, uint64_t budget_ns)
{
	const double flop =
		2.0 * shape->batch * shape->heads * shape->context * (KVK_MLA_WIDTH + KVK_MLA_LATENT);
	struct bench_pair samples[MAX_SAMPLES];
	struct bench_line median;
	struct work work;
	uint64_t begin;
	size_t n = 0;

	if (!load())
		return 0;
	open_work(&work, shape);
	set_threads((int)threads);
	decode(&work);
	begin = bench_clock_ns();
	do {
		const uint64_t start = bench_clock_ns();

		decode(&work);
		samples[n++] = (struct bench_pair){.value = flop / (double)(bench_clock_ns() - start)};
	} while (n < MAX_SAMPLES && (n < 3 || bench_clock_ns() - begin < budget_ns));
	bench_median_pair(samples, n, &median);
	return median.value;
}
