/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch's arrays on the device, on the double, with a daemon in a thread: what a stream sees is the step's, whatever was staged before
 * and whatever is prepared meanwhile.
 */
#include "staged_life.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/prep.h>

/* ------------------------------------------------------------------ arrays */

static uint32_t below(struct kvt_rng *rng, uint32_t bound)
{
	return (uint32_t)kvt_rng_below(rng, bound);
}

static void shuffle(struct life *life, struct kvt_rng *rng)
{
	uint32_t i, j;

	for (i = life->open; i > 1; i--) {
		struct kvp_seq *seq = life->seqs[i - 1];

		j = below(rng, i);
		life->seqs[i - 1] = life->seqs[j];
		life->seqs[j] = seq;
	}
}

static void truncate_one(struct life *life, struct kvt_rng *rng)
{
	struct kvp_seq *seq = life->seqs[below(rng, life->open)];

	assert_ok(kvp_sync(life->fixture->client, WAIT_MS));
	assert_ok(kvp_lease_wait(life->fixture->client, 1, WAIT_MS));
	assert_ok(kvp_seq_truncate(seq, below(rng, fixture_info(seq).settled + 1)));
}

static void one_event(struct life *life, struct kvt_rng *rng)
{
	uint32_t kind = below(rng, 8);

	if (kind == 0 && life->open < LIFE_SEQS)
		life_open(life, 1 + below(rng, 30));
	else if (kind == 1 && life->open > 1)
		life_close(life, below(rng, life->open));
	else if (kind == 2)
		shuffle(life, rng);
	else if (kind == 3)
		truncate_one(life, rng);
	if (kind < 3)
		life_set(life);
}

/* Tokens of each, or NULL for one each; sequences that are full make room. */
static const uint32_t *choose(struct life *life, struct kvt_rng *rng, uint32_t *tokens)
{
	bool ones = below(rng, 2);
	uint32_t all = 0;
	uint32_t i;

	for (i = 0; i < life->open; i++) {
		tokens[i] = ones ? 1 : below(rng, 4);
		if (fixture_info(life->seqs[i]).staged + tokens[i] > LIFE_SEQ_TOKENS) {
			life_close(life, i--);
			if (!life->open)
				life_open(life, 3);
			life_set(life);
		} else {
			all += tokens[i];
		}
	}
	assert_true(all <= LIFE_STEP_TOKENS);
	return ones ? NULL : tokens;
}

/*
 * Guards send_changes()'s runs and the gather: without list_runs()'s `end` over what the device had, cut rows keep old ids. Steps are
 * begun and not staged too, and several are in the stream before one is looked at.
 */
static void random_steps(const struct kvp_batch_params *params, uint64_t seed)
{
	struct kvt_rng rng = {seed};
	uint32_t tokens[LIFE_SEQS];
	struct life life;
	uint32_t i;

	life_begin(&life, params);
	life_open(&life, 5);
	life_set(&life);
	for (i = 0; i < 150; i++) {
		const uint32_t *of;

		one_event(&life, &rng);
		of = choose(&life, &rng, tokens);
		if (life_step(&life, of)) {
			/* All slots are in the stream. */
			OK(cuStreamSynchronize, stream);
			assert_ok(life_step(&life, of));
		}
		if (below(&rng, 10))
			assert_ok(life_stage(&life, stream));
		else
			life.view.size = 0;
		if (life.view.size && below(&rng, 3) == 0)
			life_check(&life);
		life_finish(&life, stream);
	}
	life_end(&life);
}

static void arrays_on_the_device_are_the_steps(void **state)
{
	static const struct kvp_batch_params variants[] = {
		{.size = sizeof(variants[0]), .staging = KVP_STAGING_ROWS},
		{.size = sizeof(variants[0]), .staging = KVP_STAGING_ROWS, .pad_rows = 7, .slot_bytes = 8},
		{.size = sizeof(variants[0]),
		 .staging = KVP_STAGING_ROWS,
		 .pad_table = KVP_PAD_MINUS,
		 .valid_tokens = 3},
		{.size = sizeof(variants[0]), .staging = KVP_STAGING_WHOLE},
		{.size = sizeof(variants[0]), .staging = KVP_STAGING_WHOLE, .pad_rows = 5, .slot_bytes = 8},
	};
	uint64_t seed = kvt_seed();
	uint32_t i;

	(void)state;
	for (i = 0; i < sizeof(variants) / sizeof(*variants); i++)
		random_steps(&variants[i], seed + i);
}

/* ------------------------------------------------------------------ slots and the stream */

static const struct kvp_batch_params by_rows = {.size = sizeof(by_rows), .staging = KVP_STAGING_ROWS};
static const struct kvp_batch_params whole = {.size = sizeof(whole), .staging = KVP_STAGING_WHOLE};

/* The stream stops here until the word in the page is 1. */
static _Atomic uint64_t *block_stream(void **out_page)
{
	uint64_t pointer;

	*out_page = make_registered_page(&pointer);
	OK(cuStreamWaitValue64, stream, pointer, 1, KVW_CUDA_WAIT_GEQ);
	return *out_page;
}

static void unblock_stream(_Atomic uint64_t *word, void *page)
{
	atomic_store(word, 1);
	OK(cuStreamSynchronize, stream);
	drop_registered_page(page);
}

/* By rows, with six sequences in the batch. */
static void begin_with_six(struct life *life)
{
	life_begin(life, &by_rows);
	life_open(life, 6);
	life_set(life);
}

/*
 * Guards `slot->staged` in kvc_slot_is_free(): a slot that was taken for free when its step ended, or at once, would be overwritten before the
 * stream has read it.
 */
static void a_slot_is_busy_until_the_stream_has_read_it(void **state)
{
	_Atomic uint64_t *word;
	struct life life;
	void *page;
	uint32_t i;

	(void)state;
	begin_with_six(&life);
	word = block_stream(&page);
	for (i = 0; i < LIFE_SLOTS; i++) {
		assert_ok(life_step(&life, NULL));
		assert_ok(life_stage(&life, stream));
	}
	assert_error(life_step(&life, NULL), KVP_ESLOTS);
	unblock_stream(word, page);
	/* The steps have not ended, the copies have run. */
	assert_int_equal(kvp_step_reached(life.fixture->client, 0), 0);
	assert_ok(life_step(&life, NULL));
	assert_ok(life_stage(&life, stream));
	life_check(&life);
	life_end(&life);
}

/* Guards the stream in kvc_word_store(): a store by the host would be seen at once. */
static void a_step_is_done_when_its_stream_has_run(void **state)
{
	_Atomic uint64_t *word;
	struct life life;
	void *page;

	(void)state;
	begin_with_six(&life);
	assert_ok(life_step(&life, NULL));
	word = block_stream(&page);
	assert_ok(life_stage(&life, stream));
	assert_ok(kvp_step_done_on(life.fixture->client, 0, life.step, stream));
	assert_error(kvp_step_done_on(life.fixture->client, 0, life.step, stream), EINVAL);
	assert_int_equal(kvp_step_reached(life.fixture->client, 0), 0);
	unblock_stream(word, page);
	assert_int_equal(kvp_step_reached(life.fixture->client, 0), life.step);
	life_end(&life);
}

/* Guards wait_for_last(): without it the second stream writes arrays that the first still reads. */
static void a_step_on_another_stream_waits_for_the_one_before(void **state)
{
	struct kvw_cuda_stream *other;
	_Atomic uint64_t *word;
	struct life life;
	uint32_t before;
	uint32_t seen;
	uint64_t copy;
	void *page;

	(void)state;
	OK(cuStreamCreate, &other, KVW_CUDA_STREAM_NON_BLOCKING);
	begin_with_six(&life);
	assert_ok(life_step(&life, NULL));
	assert_ok(life_stage(&life, stream));
	before = life.rows[0].before + 1;
	OK(cuMemAlloc, &copy, 4);
	word = block_stream(&page);
	OK(cuMemcpyDtoDAsync, copy, (uint64_t)(uintptr_t)life.view.kv_lens, 4, stream);
	assert_ok(life_step(&life, NULL));
	assert_error(life_stage(&life, other), KVP_ESTATE); /* the first has no end yet */
	assert_non_null(strstr(kvp_last_error(), "kvp_step_done_on() first"));
	assert_ok(kvp_step_done_on(life.fixture->client, 0, life.step - 1, stream));
	assert_ok(life_stage(&life, other));
	assert_int_equal(cuda->cuStreamQuery(other), KVW_CUDA_NOT_READY);
	unblock_stream(word, page);
	OK(cuStreamSynchronize, other);
	read_words(copy, &seen, 1);
	assert_int_equal(seen, before);
	OK(cuMemFree, copy);
	life_check(&life);
	life_end(&life);
	OK(cuStreamDestroy, other);
}

static uint64_t waits(void)
{
	return kvt_cuda_calls(getpid(), "cuStreamSynchronize") +
	       kvt_cuda_calls(getpid(), "cuCtxSynchronize") + kvt_cuda_calls(getpid(), "cuEventSynchronize");
}

static uint64_t makes(void)
{
	return kvt_cuda_calls(getpid(), "cuMemAlloc") + kvt_cuda_calls(getpid(), "cuMemFree") +
	       kvt_cuda_calls(getpid(), "cuMemHostRegister") +
	       kvt_cuda_calls(getpid(), "cuModuleGetFunction");
}

/* And the driver is called a handful of times: context, capture, two kernels, the slot's word; then context, capture, the step's word. */
static void a_step_waits_for_nothing_and_makes_nothing(void **state)
{
	struct life life;
	uint64_t waited, made, called;
	uint32_t i;

	(void)state;
	begin_with_six(&life);
	assert_ok(life_step(&life, NULL));
	assert_ok(life_stage(&life, stream));
	life_finish(&life, stream);
	for (i = 0; i < 20; i++) {
		OK(cuStreamSynchronize, stream);
		waited = waits();
		made = makes();
		called = kvt_cuda_process(getpid())->calls;
		assert_ok(life_step(&life, NULL));
		assert_ok(life_stage(&life, stream));
		life_finish(&life, stream);
		assert_int_equal(waits(), waited);
		assert_int_equal(makes(), made);
		assert_true(kvt_cuda_process(getpid())->calls - called <= 8);
	}
	life_end(&life);
}

/* ------------------------------------------------------------------ captures and corrections */

static void nothing_of_a_step_goes_into_a_capture(void **state)
{
	struct kvw_cuda_graph *graph;
	struct life life;

	(void)state;
	begin_with_six(&life);
	assert_ok(life_step(&life, NULL));
	OK(cuStreamBeginCapture, stream, KVW_CUDA_CAPTURE_THREAD_LOCAL);
	assert_error(life_stage(&life, stream), KVP_ESTATE);
	assert_non_null(strstr(kvp_last_error(), "stage before the capture"));
	assert_error(kvp_step_done_on(life.fixture->client, 0, life.step, stream), KVP_ESTATE);
	assert_non_null(strstr(kvp_last_error(), "behind each launch of the graph"));
	OK(cuStreamEndCapture, stream, &graph); /* it was not spoiled */
	OK(cuGraphDestroy, graph);
	assert_ok(life_stage(&life, stream));
	life_check(&life);
	life_end(&life);
}

static uint64_t device_copy(const int32_t *values, size_t count)
{
	uint64_t pointer = 0;

	OK(cuMemAlloc, &pointer, count * sizeof(*values));
	OK(cuMemcpyHtoDAsync, pointer, values, count * sizeof(*values), stream);
	OK(cuStreamSynchronize, stream);
	return pointer;
}

static int64_t up(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

/* By the definition: token by token, from the lengths. */
static void check_corrected(const struct life *life, const uint32_t *tokens, const int32_t *lens,
			    int64_t least)
{
	struct device_arrays *arrays = calloc(1, sizeof(*arrays));
	int64_t at = 0, sum = 0;
	uint32_t i, j;

	life_read(life, arrays);
	for (i = 0; i < life->open; i++) {
		int64_t staged = life->rows[i].before + tokens[i];
		int64_t kv = lens[i] < staged ? lens[i] : staged;

		assert_int_equal(arrays->kv_lens[i], kv);
		assert_int_equal(arrays->cu_kv[i], sum);
		sum += kv;
		for (j = 0; j < tokens[i]; j++, at++) {
			int64_t pos = kv - tokens[i] + j;
			int64_t slot = pos < 0 ? -1 : life->rows[i].ids[pos / 4] * INT64_C(4) + pos % 4;

			assert_int_equal(arrays->slot_mapping[at], slot);
			assert_int_equal(arrays->n_valid[at],
					 up(pos + 1 > least ? pos + 1 : least, life->model.valid_tokens));
		}
	}
	assert_int_equal(arrays->cu_kv[life->open], sum);
	free(arrays);
}

/* Rejected drafts; a growth, which is none; a sequence shorter than its own query. */
static void correct(const struct kvp_batch_params *params, uint32_t flags)
{
	const uint32_t tokens[3] = {3, 2, 4};
	int32_t lens[3] = {0, 900, 2};
	struct kvp_correct_params correction = {.size = sizeof(correction), .flags = flags, .stream = stream};
	struct life life;
	uint64_t device_lens;

	life_begin(&life, params);
	life_open(&life, 9);
	life_open(&life, 6);
	life_open(&life, 1);
	life_set(&life);
	assert_ok(life_step(&life, (const uint32_t[]){9, 6, 1}));
	assert_error(kvp_batch_correct_lens(life.batch, &correction), KVP_ESTATE);
	assert_ok(life_stage(&life, stream));
	life_finish(&life, stream);
	assert_ok(life_step(&life, tokens));
	assert_ok(life_stage(&life, stream));
	lens[0] = (int32_t)life.rows[0].before + 1;
	device_lens = device_copy(lens, 3);
	correction.lens = (const int32_t *)(uintptr_t)device_lens;
	assert_ok(kvp_batch_correct_lens(life.batch, &correction));
	check_corrected(&life, tokens, lens, flags ? 0 : 1);
	/* Again, and from the corrected lengths themselves. */
	assert_ok(kvp_batch_correct_lens(life.batch, &correction));
	correction.lens = NULL;
	assert_ok(kvp_batch_correct_lens(life.batch, &correction));
	check_corrected(&life, tokens, lens, flags ? 0 : 1);
	OK(cuMemFree, device_lens);
	life_end(&life);
}

static void lengths_are_corrected_on_the_device(void **state)
{
	static const struct kvp_batch_params other = {
		.size = sizeof(other), .staging = KVP_STAGING_ROWS, .valid_tokens = 3, .slot_bytes = 8};

	(void)state;
	correct(&by_rows, 0);
	correct(&by_rows, KVP_CORRECT_NEWEST);
	correct(&other, 0);
	correct(&whole, KVP_CORRECT_NEWEST);
}

/* Guards check_rows(): a part without its array, or with rows of no meaning, is refused before anything is queued. */
static void a_plan_without_a_target_is_an_error(void **state)
{
	struct kvp_correct_params correction = {
		.size = sizeof(correction), .stream = stream, .part_count = 1};
	struct kvk_prep_plan_part part = {.first = 0, .last = 2, .kv_segment_rows = 5, .qo_offset_rows = 2};
	int32_t values[8];
	struct life life;
	uint64_t array;

	(void)state;
	memset(values, 0x77, sizeof(values));
	life_begin(&life, &by_rows);
	array = device_copy(values, 8);
	life_open(&life, 9);
	life_open(&life, 6);
	life_set(&life);
	assert_ok(life_step(&life, (const uint32_t[]){2, 3}));
	assert_ok(life_stage(&life, stream));
	correction.parts = &part;
	part.kv_segment_lens = (int32_t *)(uintptr_t)array;
	assert_error(kvp_batch_correct_lens(life.batch, &correction), ENOENT);
	assert_non_null(strstr(kvp_last_error(), "part 0 has no 'qo_offset'"));
	part.qo_offset = part.kv_segment_lens + 5;
	part.kv_segment_rows = 4;
	assert_error(kvp_batch_correct_lens(life.batch, &correction), ERANGE);
	correction.flags = KVP_CORRECT_NEWEST;
	assert_error(kvp_batch_correct_lens(life.batch, &correction), EINVAL);
	correction.flags = 0;
	assert_int_equal(count_others(array, 0x77777777, 8), 0);
	part.kv_segment_rows = 5;
	assert_ok(kvp_batch_correct_lens(life.batch, &correction));
	read_words(array, (uint32_t *)values, 8);
	assert_memory_equal(values, ((const int32_t[]){2, 2, 3, 3, 3, 0, 0, 0x77777777}), sizeof(values));
	OK(cuMemFree, array);
	life_end(&life);
}

/* Captures the correction and a copy of what a kernel would read, at `rows` rows. */
static struct kvw_cuda_graph_exec *capture(const struct life *life, uint32_t rows, uint64_t to)
{
	const struct kvp_correct_params correction = {
		.size = sizeof(correction), .stream = stream, .rows = rows, .flags = KVP_CORRECT_NEWEST};
	struct kvw_cuda_graph_exec *exec;
	struct kvw_cuda_graph *graph;

	OK(cuStreamBeginCapture, stream, KVW_CUDA_CAPTURE_GLOBAL);
	assert_ok(kvp_batch_correct_lens(life->batch, &correction));
	OK(cuMemcpyDtoDAsync, to, (uint64_t)(uintptr_t)life->view.kv_lens, LIFE_SEQS * 4, stream);
	OK(cuMemcpyDtoDAsync, to + LIFE_SEQS * 4, (uint64_t)(uintptr_t)life->view.slot_mapping, LIFE_SEQS * 4,
	   stream);
	OK(cuStreamEndCapture, stream, &graph);
	OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
	OK(cuGraphDestroy, graph);
	return exec;
}

static void check_replay(const struct life *life, uint64_t to, uint32_t rows)
{
	int32_t seen[2 * LIFE_SEQS];
	uint32_t i;

	read_words(to, (uint32_t *)seen, 2 * LIFE_SEQS);
	for (i = 0; i < rows; i++) {
		bool is = i < life->open;
		uint32_t at = life->rows[i].before;

		assert_int_equal(seen[i], is ? at + 1 : 0);
		assert_int_equal(seen[LIFE_SEQS + i],
				 is ? life->rows[i].ids[at / 4] * 4 + (int32_t)(at % 4) : -1);
	}
}

/*
 * Guards the one set of arrays and pad_slot(): with arrays a slot, or without the padding of rows that are no more, a graph captured once
 * would show another step's lengths.
 */
static void a_captured_graph_replays_growing_and_shrinking_steps(void **state)
{
	struct kvw_cuda_graph_exec *exec;
	struct kvt_rng rng = {kvt_seed()};
	struct kvp_batch_view first;
	struct life life;
	uint64_t to = 0;
	uint32_t i;

	(void)state;
	life_begin(&life, &by_rows);
	OK(cuMemAlloc, &to, 2 * LIFE_SEQS * 4);
	while (life.open < 8)
		life_open(&life, 1 + life.open);
	life_set(&life);
	assert_ok(life_step(&life, NULL));
	assert_ok(life_stage(&life, stream));
	first = life.view;
	exec = capture(&life, 8, to);
	life_finish(&life, stream);
	for (i = 0; i < 40; i++) {
		OK(cuStreamSynchronize, stream);
		if (below(&rng, 3) == 0 && life.open > 1)
			life_close(&life, below(&rng, life.open));
		else if (life.open < 8)
			life_open(&life, 1 + below(&rng, 20));
		life_set(&life);
		assert_ok(life_step(&life, NULL));
		assert_ok(life_stage(&life, stream));
		assert_ptr_equal(life.view.block_table, first.block_table);
		assert_ptr_equal(life.view.slot_mapping, first.slot_mapping);
		OK(cuGraphLaunch, exec, stream);
		life_finish(&life, stream);
		check_replay(&life, to, 8);
	}
	OK(cuGraphExecDestroy, exec);
	OK(cuMemFree, to);
	life_end(&life);
}

/* ------------------------------------------------------------------ life and failures */

static void a_batch_without_a_device_says_so(void **state)
{
	struct fixture *fixture = fixture_open(NULL, NULL);
	struct kvp_batch_view view = {.size = sizeof(view)};
	struct kvp_batch *batch = NULL;

	(void)state;
	assert_error(kvp_batch_create(fixture->client, &by_rows, &batch), KVP_ESTATE);
	assert_non_null(strstr(kvp_last_error(), "the client has no device"));
	assert_error(kvp_step_done_on(fixture->client, 0, 1, stream), KVP_ESTATE);
	assert_ok(kvp_batch_create(fixture->client, NULL, &batch));
	assert_error(kvp_batch_stage(batch, stream, &view), KVP_ESTATE);
	kvp_batch_destroy(batch);
	fixture_close(fixture);
}

/* Guards kvc_stage_check_ended(): the next batch's arrays lie where a stream still reads the last one's. */
static void the_next_batch_waits_for_what_the_stream_reads(void **state)
{
	_Atomic uint64_t *word;
	struct life life;
	void *page;

	(void)state;
	begin_with_six(&life);
	word = block_stream(&page);
	assert_ok(life_step(&life, NULL));
	assert_ok(life_stage(&life, stream));
	kvp_step_done(life.fixture->client, 0, life.step); /* as a careless engine might */
	kvp_batch_destroy(life.batch);
	assert_error(kvp_batch_create(life.fixture->client, &whole, &life.batch), KVP_ESLOTS);
	unblock_stream(word, page);
	assert_ok(kvp_batch_create(life.fixture->client, &whole, &life.batch));
	life_set(&life);
	assert_ok(life_step(&life, NULL));
	assert_ok(life_stage(&life, stream));
	life_check(&life);
	life_end(&life);
}

/* From the attach to the close, as far as the first failure lets it. */
static int whole_life(struct fixture *fixture)
{
	const struct kvp_attach_params attach = {
		.size = sizeof(attach), .max_seqs = 4, .max_seq_tokens = 32, .cuda_context = context};
	const struct kvp_correct_params correction = {.size = sizeof(correction), .stream = stream};
	struct kvp_batch_view view = {.size = sizeof(view)};
	struct kvp_batch *batch = NULL;
	struct kvp_seq *seq;
	int ret = kvp_attach(fixture->client, &attach);

	if (!ret)
		ret = kvp_batch_create(fixture->client, &by_rows, &batch);
	if (ret)
		return ret;
	seq = fixture_seq(fixture, 1, 6, 0, 0);
	assert_ok(kvp_batch_set(batch, &seq, 1));
	assert_ok(kvp_batch_begin(batch, NULL, 0, 1, &view));
	ret = kvp_batch_stage(batch, stream, &view);
	if (!ret)
		ret = kvp_batch_correct_lens(batch, &correction);
	if (!ret)
		ret = kvp_step_done_on(fixture->client, 0, 1, stream);
	return ret;
}

/*
 * The n-th call of the driver fails, for n from 1 until none does: an error with a text, and nothing is left in the driver. A failure
 * while closing is nobody's to hear; what could not be given back is the only thing left then.
 */
static void no_failed_call_leaves_anything(void **state)
{
	int64_t before = kvt_cuda_live(getpid(), NULL, 0);
	uint64_t n;
	int ret = -1;

	(void)state;
	for (n = 1; ret; n++) {
		struct fixture *fixture = calloc(1, sizeof(*fixture));
		char left[512];

		assert_non_null(fixture);
		fixture->fds = kvt_count_fds();
		fixture->fake = fake_start(NULL);
		fixture->client = fixture_connect(fixture->fake);
		kvt_cuda_fail(NULL, n, KVW_CUDA_OUT_OF_MEMORY);
		ret = whole_life(fixture);
		kvt_cuda_fail(NULL, 0, 0);
		if (ret)
			assert_non_null(strstr(kvp_last_error(), "CUDA_ERROR_OUT_OF_MEMORY"));
		OK(cuStreamSynchronize, stream);
		fixture_close(fixture);
		if (kvt_cuda_live(getpid(), left, sizeof(left)) != before) {
			print_error("after call %llu failed: %s\n", (unsigned long long)n, left);
			fail();
		}
	}
	/* Opening, context, pins, kernels, memory, and a step. */
	assert_true(n > 25);
}

/* A forked child's handle is dead: it touches no context of its parent's. */
static void a_forked_child_leaves_the_device_alone(void **state)
{
	struct life life;
	pid_t pid;

	(void)state;
	begin_with_six(&life);
	assert_ok(life_step(&life, NULL));
	pid = fork();
	if (!pid) {
		struct kvp_batch_view view = {.size = sizeof(view)};
		bool dead = kvp_batch_stage(life.batch, stream, &view) == -KVP_EFORKED &&
			    kvp_step_done_on(life.fixture->client, 0, 1, stream) == -KVP_EFORKED;

		kvp_close(life.fixture->client);
		_exit(dead ? 0 : 1);
	}
	assert_int_equal(kvt_cuda_reap(pid), 0);
	assert_ok(life_stage(&life, stream));
	life_check(&life);
	life_end(&life);
}

/* ------------------------------------------------------------------ a device whose streams can't store words */

static const struct CMUnitTest all_tests[] = {
	cmocka_unit_test(arrays_on_the_device_are_the_steps),
	cmocka_unit_test(a_slot_is_busy_until_the_stream_has_read_it),
	cmocka_unit_test(a_step_is_done_when_its_stream_has_run),
	cmocka_unit_test(a_step_on_another_stream_waits_for_the_one_before),
	cmocka_unit_test(a_step_waits_for_nothing_and_makes_nothing),
	cmocka_unit_test(nothing_of_a_step_goes_into_a_capture),
	cmocka_unit_test(lengths_are_corrected_on_the_device),
	cmocka_unit_test(a_plan_without_a_target_is_an_error),
	cmocka_unit_test(a_captured_graph_replays_growing_and_shrinking_steps),
	cmocka_unit_test(a_batch_without_a_device_says_so),
	cmocka_unit_test(the_next_batch_waits_for_what_the_stream_reads),
	cmocka_unit_test(no_failed_call_leaves_anything),
	cmocka_unit_test(a_forked_child_leaves_the_device_alone),
};

static _Atomic uint32_t gate_open;

static void wait_at_gate(void *argument)
{
	(void)argument;
	while (!atomic_load(&gate_open))
		;
}

/* A host function stores instead, in the stream's order. */
static void without_words_the_host_stores_in_order(void **state)
{
	struct life life;
	uint32_t i;

	(void)state;
	begin_with_six(&life);
	atomic_store(&gate_open, 0);
	OK(cuLaunchHostFunc, stream, wait_at_gate, NULL);
	for (i = 0; i < LIFE_SLOTS; i++) {
		assert_ok(life_step(&life, NULL));
		assert_ok(life_stage(&life, stream));
		life_finish(&life, stream);
	}
	assert_error(life_step(&life, NULL), KVP_ESLOTS);
	assert_int_equal(kvp_step_reached(life.fixture->client, 0), 0);
	atomic_store(&gate_open, 1);
	OK(cuStreamSynchronize, stream);
	assert_int_equal(kvp_step_reached(life.fixture->client, 0), LIFE_SLOTS);
	assert_ok(life_step(&life, NULL));
	assert_ok(life_stage(&life, stream));
	life_check(&life);
	life_end(&life);
}

static int run_without_words(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arrays_on_the_device_are_the_steps),
		cmocka_unit_test(without_words_the_host_stores_in_order),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}

/* In a process of its own: the double reads its environment once. */
static int fallback_fails(void)
{
	const char *environment[] = {"FAKECUDA_ATTRIBUTES=122=0", NULL};
	int socket_fd;
	pid_t pid = kvt_cuda_spawn("without-words", environment, &socket_fd);

	close(socket_fd);
	return kvt_cuda_reap(pid);
}

int main(int argc, char **argv)
{
	(void)argc;
	setenv("FAKECUDA_KERNELS", SIMT_KERNELS, 0);
	setenv("FAKECUDA_DELAY_US", "50", 0);
	kvt_cuda_start(argv);
	kvt_watchdog(110);
	if (kvt_cuda_role())
		return run_without_words();
	return cmocka_run_group_tests(all_tests, fixture_setup, fixture_teardown) + fallback_fails();
}
