/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The double's order: within a stream as queued, late, and free between streams but for what was asked for.
 */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STREAMS 6

static struct kvw_cuda_stream *many[STREAMS];

static void create_many(unsigned flags)
{
	for (unsigned i = 0; i < STREAMS; i++)
		OK(cuStreamCreate, &many[i], flags);
}

static void destroy_many(void)
{
	for (unsigned i = 0; i < STREAMS; i++)
		OK(cuStreamDestroy, many[i]);
}

struct log {
	unsigned used;
	unsigned entries[64];
};

struct note {
	struct log *log;
	unsigned number;
};

static void write_note(void *arg)
{
	const struct note *note = arg;

	note->log->entries[note->log->used++] = note->number;
}

static void a_stream_keeps_its_order(void **state)
{
	struct log log = {0};
	struct note notes[32];

	(void)state;
	for (unsigned i = 0; i < 32; i++) {
		notes[i] = (struct note){&log, i};
		OK(cuLaunchHostFunc, stream, write_note, &notes[i]);
	}
	OK(cuStreamSynchronize, stream);
	assert_int_equal(log.used, 32);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(log.entries[i], i);
}

/* Two streams, ready at once, 60 times: by chance each comes first at least once, but in 1 of 2^59 runs. */
static void streams_overtake_each_other(void **state)
{
	struct log log;
	struct note notes[2] = {{&log, 0}, {&log, 1}};
	unsigned first[2] = {0, 0};

	(void)state;
	create_many(KVW_CUDA_STREAM_NON_BLOCKING);
	for (unsigned round = 0; round < 60; round++) {
		log.used = 0;
		/* Before a host waits nothing starts: both are there when the choice is made. */
		for (unsigned i = 0; i < 2; i++)
			OK(cuLaunchHostFunc, many[i], write_note, &notes[i]);
		OK(cuCtxSynchronize, );
		assert_int_equal(log.used, 2);
		first[log.entries[0]]++;
	}
	assert_true(first[0] > 0 && first[1] > 0);
	destroy_many();
}

static void an_event_orders_two_streams(void **state)
{
	struct kvw_cuda_event *event;
	uint64_t word;
	uint64_t *page = make_registered_page(&word);
	struct log log = {0};
	struct note first = {&log, 1};
	struct note second = {&log, 2};

	(void)state;
	create_many(KVW_CUDA_STREAM_NON_BLOCKING);
	OK(cuEventCreate, &event, KVW_CUDA_EVENT_DISABLE_TIMING);
	OK(cuStreamWaitValue64, many[0], word, 1, KVW_CUDA_WAIT_GEQ);
	OK(cuLaunchHostFunc, many[0], write_note, &first);
	OK(cuEventRecord, event, many[0]);
	OK(cuStreamWaitEvent, many[1], event, 0);
	OK(cuLaunchHostFunc, many[1], write_note, &second);
	ANSWERS(KVW_CUDA_NOT_READY, cuEventQuery, event);
	ANSWERS(KVW_CUDA_NOT_READY, cuStreamQuery, many[1]);
	__atomic_store_n(page, 1, __ATOMIC_RELEASE);
	OK(cuStreamSynchronize, many[1]);
	assert_int_equal(log.used, 2);
	assert_int_equal(log.entries[0], 1);
	OK(cuEventQuery, event);
	OK(cuEventDestroy, event);
	destroy_many();
	drop_registered_page(page);
}

/* A wait is for the record that was made before it, not for a later one. */
static void a_wait_is_for_the_record_before_it(void **state)
{
	struct kvw_cuda_event *event;
	uint64_t word;
	uint64_t *page = make_registered_page(&word);

	(void)state;
	create_many(KVW_CUDA_STREAM_NON_BLOCKING);
	OK(cuEventCreate, &event, KVW_CUDA_EVENT_DISABLE_TIMING);
	OK(cuStreamWaitEvent, many[1], event, 0); /* never recorded: nothing to wait for */
	OK(cuStreamSynchronize, many[1]);
	OK(cuEventRecord, event, many[0]);
	OK(cuStreamWaitEvent, many[1], event, 0);
	OK(cuStreamWaitValue64, many[0], word, 1, KVW_CUDA_WAIT_GEQ);
	OK(cuEventRecord, event, many[0]);
	OK(cuStreamSynchronize, many[1]);
	ANSWERS(KVW_CUDA_NOT_READY, cuEventQuery, event);
	/* Destroyed while it is queued: the stream goes on. */
	OK(cuStreamWaitEvent, many[2], event, 0);
	OK(cuEventDestroy, event);
	ANSWERS(KVW_CUDA_NOT_READY, cuStreamQuery, many[2]);
	__atomic_store_n(page, 1, __ATOMIC_RELEASE);
	OK(cuStreamSynchronize, many[2]);
	destroy_many();
	drop_registered_page(page);
}

/* flags, word, value, whether a stream goes on */
static const struct {
	unsigned flags;
	uint64_t word, value;
	bool ready;
} waits[] = {
	{KVW_CUDA_WAIT_GEQ, 5, 5, true},
	{KVW_CUDA_WAIT_GEQ, 4, 5, false},
	{KVW_CUDA_WAIT_GEQ, 2, UINT64_MAX - 1, true}, /* cyclic */
	{KVW_CUDA_WAIT_EQ, 5, 5, true},
	{KVW_CUDA_WAIT_EQ, 6, 5, false},
	{KVW_CUDA_WAIT_AND, 6, 4, true},
	{KVW_CUDA_WAIT_AND, 6, 8, false},
	{KVW_CUDA_WAIT_NOR, UINT64_MAX - 1, 1, false},
	{KVW_CUDA_WAIT_NOR, 2, 1, true},
};

static void waits_compare_as_asked(void **state)
{
	uint64_t word;
	uint64_t *page = make_registered_page(&word);

	(void)state;
	create_many(KVW_CUDA_STREAM_NON_BLOCKING);
	for (unsigned i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		__atomic_store_n(page, waits[i].word, __ATOMIC_RELEASE);
		OK(cuStreamWaitValue64, many[0], word, waits[i].value, waits[i].flags);
		/* The device was looking at the word when the second stream's work was done. */
		OK(cuStreamWriteValue32, many[1], word + 64, i, 0);
		OK(cuStreamSynchronize, many[1]);
		if (waits[i].ready) {
			OK(cuStreamSynchronize, many[0]);
			continue;
		}
		ANSWERS(KVW_CUDA_NOT_READY, cuStreamQuery, many[0]);
		__atomic_store_n(page, waits[i].flags == KVW_CUDA_WAIT_NOR ? 0 : 5 | 8, __ATOMIC_RELEASE);
		if (waits[i].flags == KVW_CUDA_WAIT_EQ)
			__atomic_store_n(page, 5, __ATOMIC_RELEASE);
		OK(cuStreamSynchronize, many[0]);
	}
	destroy_many();
	drop_registered_page(page);
}

static void written_words_are_seen_by_the_host_in_order(void **state)
{
	uint64_t word;
	uint64_t *page = make_registered_page(&word);

	(void)state;
	for (uint64_t i = 1; i <= 8; i++)
		OK(cuStreamWriteValue64, stream, word, i, KVW_CUDA_WRITE_DEFAULT);
	OK(cuStreamWriteValue32, stream, word + 8, 0xabcd, KVW_CUDA_WRITE_DEFAULT);
	OK(cuStreamSynchronize, stream);
	assert_int_equal(page[0], 8);
	assert_int_equal(page[1], 0xabcd);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuStreamWriteValue64, stream, word + 4, 1, 0);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuStreamWriteValue64, stream, word + 4096, 1, 0);
	drop_registered_page(page);
}

static bool is_zero(void *arg)
{
	return __atomic_load_n((uint64_t *)arg, __ATOMIC_ACQUIRE) == 0;
}

/*
 * Registered memory is read when the copy's turn comes: a host that fills it again too early spoils what it
 * sent.
 */
static void a_copy_reads_registered_memory_late(void **state)
{
	uint64_t from;
	uint64_t *page = make_registered_page(&from);
	uint64_t target;
	uint32_t word;

	(void)state;
	OK(cuMemAlloc, &target, 64);
	__atomic_store_n(page, 1, __ATOMIC_RELEASE);
	OK(cuStreamWaitValue64, stream, from + 1024, 1, KVW_CUDA_WAIT_GEQ);
	OK(cuMemcpyHtoDAsync, target, page, 8, stream);
	__atomic_store_n(page, 2, __ATOMIC_RELEASE);
	__atomic_store_n(page + 128, 1, __ATOMIC_RELEASE);
	OK(cuStreamSynchronize, stream);
	read_words(target, &word, 1);
	assert_int_equal(word, 2);
	OK(cuMemFree, target);
	drop_registered_page(page);
}

static void a_copy_of_other_memory_blocks_and_is_counted(void **state)
{
	uint64_t before = kvt_cuda_process(getpid())->blocking_copies;
	uint64_t from;
	uint64_t *page = make_registered_page(&from);
	uint64_t target;
	uint32_t word = 1;

	(void)state;
	OK(cuMemAlloc, &target, 64);
	OK(cuMemcpyHtoDAsync, target, page, 8, stream);
	assert_int_equal(kvt_cuda_process(getpid())->blocking_copies, before);
	OK(cuMemcpyHtoDAsync, target, &word, 4, stream);
	OK(cuStreamQuery, stream); /* done: the call waited */
	assert_int_equal(kvt_cuda_process(getpid())->blocking_copies, before + 1);
	/* Half of it registered is not registered. */
	OK(cuMemcpyDtoHAsync, page + 511, target, 8, stream);
	assert_int_equal(kvt_cuda_process(getpid())->blocking_copies, before + 1);
	OK(cuMemFree, target);
	drop_registered_page(page);
}

static void the_default_stream_and_blocking_streams_wait_for_each_other(void **state)
{
	struct log log = {0};
	struct note notes[3] = {{&log, 0}, {&log, 1}, {&log, 2}};

	(void)state;
	create_many(0);
	for (unsigned round = 0; round < 10; round++) {
		log.used = 0;
		OK(cuLaunchHostFunc, many[round % STREAMS], write_note, &notes[0]);
		OK(cuLaunchHostFunc, NULL, write_note, &notes[1]);
		OK(cuLaunchHostFunc, many[(round + 1) % STREAMS], write_note, &notes[2]);
		OK(cuCtxSynchronize, );
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(log.entries[i], i);
	}
	destroy_many();
}

static unsigned answer_in_host_function;

static void call_the_driver(void *arg)
{
	uint64_t pointer;

	(void)arg;
	answer_in_host_function = cuda->cuMemAlloc(&pointer, 64);
}

static void host_functions_may_not_call_the_driver(void **state)
{
	(void)state;
	answer_in_host_function = 0;
	OK(cuLaunchHostFunc, stream, call_the_driver, NULL);
	OK(cuStreamSynchronize, stream);
	assert_int_equal(answer_in_host_function, KVW_CUDA_NOT_PERMITTED);
}

/* 300 us is the double's default. */
static void work_is_done_late_but_without_anybody_waiting(void **state)
{
	uint64_t word;
	uint64_t *page = make_registered_page(&word);
	uint64_t start;

	(void)state;
	page[0] = 1;
	start = kvt_now_ns();
	OK(cuStreamWriteValue64, stream, word, 0, 0);
	kvt_wait_until(is_zero, page);
	assert_true(kvt_now_ns() - start >= 300000);
	drop_registered_page(page);
}

static void registering_knows_its_ranges(void **state)
{
	uint64_t pointer;
	char *page = make_registered_page(&pointer);
	char *read_only = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)state;
	ANSWERS(KVW_CUDA_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister, page + 64, 64, 0);
	ANSWERS(KVW_CUDA_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, page + 64);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemHostRegister, (void *)(uintptr_t)4096, 4096, 0);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemHostRegister, read_only, 4096, 0);
	ANSWERS(KVW_CUDA_NOT_SUPPORTED, cuMemHostRegister, read_only, 4096, KVW_CUDA_HOST_READ_ONLY);
	drop_registered_page(page);
	ANSWERS(KVW_CUDA_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, page);
	munmap(read_only, 4096);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stream_keeps_its_order),
		cmocka_unit_test(streams_overtake_each_other),
		cmocka_unit_test(an_event_orders_two_streams),
		cmocka_unit_test(a_wait_is_for_the_record_before_it),
		cmocka_unit_test(waits_compare_as_asked),
		cmocka_unit_test(written_words_are_seen_by_the_host_in_order),
		cmocka_unit_test(a_copy_reads_registered_memory_late),
		cmocka_unit_test(a_copy_of_other_memory_blocks_and_is_counted),
		cmocka_unit_test(the_default_stream_and_blocking_streams_wait_for_each_other),
		cmocka_unit_test(host_functions_may_not_call_the_driver),
		cmocka_unit_test(work_is_done_late_but_without_anybody_waiting),
		cmocka_unit_test(registering_knows_its_ranges),
	};

	(void)argc;
	kvt_cuda_start(argv);
	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
