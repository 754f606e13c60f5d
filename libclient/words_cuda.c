/* SPDX-License-Identifier: Apache-2.0 */
#include "words_cuda.h"

#include <errno.h>
#include <stdlib.h>

#include <kvpool/error.h>

#include "cuda.h"
#include "error.h"

/* Steps in flight times timelines, and slots. */
#define RECORDS 512u

struct record {
	_Atomic uint64_t *word;
	uint64_t value;
	_Atomic uint32_t queued;
};

struct kvc_cuda_words {
	_Atomic uint32_t next;
	struct record records[RECORDS];
};

int kvc_words_create(struct kvc_cuda_words **out)
{
	struct kvc_cuda_words *words = calloc(1, sizeof(*words));

	if (!words)
		return kvc_fail_plain(ENOMEM, "words that the host stores for a stream");
	*out = words;
	return 0;
}

void kvc_words_destroy(struct kvc_cuda_words *words)
{
	free(words);
}

/* On a thread of the driver's, in the stream's order. */
static void store(void *argument)
{
	struct record *record = argument;
	uint64_t seen = atomic_load_explicit(record->word, memory_order_relaxed);

	while (seen < record->value &&
	       !atomic_compare_exchange_weak_explicit(record->word, &seen, record->value,
						      memory_order_release, memory_order_relaxed))
		;
	atomic_store_explicit(&record->queued, 0, memory_order_release);
}

static struct record *take_record(struct kvc_cuda_words *words)
{
	uint32_t i = atomic_fetch_add_explicit(&words->next, 1, memory_order_relaxed) % RECORDS;
	struct record *record = &words->records[i];
	uint32_t idle = 0;

	return atomic_compare_exchange_strong_explicit(&record->queued, &idle, 1, memory_order_acquire,
						       memory_order_relaxed)
		       ? record
		       : NULL;
}

static int store_by_host(const struct kvc_cuda *cuda, struct kvw_cuda_stream *stream, _Atomic uint64_t *word,
			 uint64_t value, struct kvw_cuda_error *error)
{
	struct record *record = take_record(cuda->words);
	int ret;

	if (!record)
		return kvc_fail(KVP_EBACKLOG,
				"%u steps are queued, the most on a device whose streams can't store words: "
				"wait for one",
				RECORDS);
	record->word = word;
	record->value = value;
	ret = KVW_CUDA(cuda->driver, error, cuLaunchHostFunc, stream, store, record);
	if (ret < 0)
		atomic_store_explicit(&record->queued, 0, memory_order_release);
	return ret < 0 ? kvc_cuda_fail(ret, error, "queueing the end of a step") : 0;
}

int kvc_word_store(const struct kvc_cuda *cuda, struct kvw_cuda_stream *stream, _Atomic uint64_t *word,
		   uint64_t address, uint64_t value)
{
	struct kvw_cuda_error error;
	int ret;

	if (!cuda->has_words)
		return store_by_host(cuda, stream, word, value, &error);
	/* With its memory barrier: what the stream wrote before is seen by whoever sees the word. */
	ret = KVW_CUDA(cuda->driver, &error, cuStreamWriteValue64, stream, address, value,
		       KVW_CUDA_WRITE_DEFAULT);
	return ret < 0 ? kvc_cuda_fail(ret, &error, "queueing the end of a step") : 0;
}

int kvc_word_wait(const struct kvc_cuda *cuda, struct kvw_cuda_stream *stream, uint64_t address,
		  uint64_t value)
{
	struct kvw_cuda_error error;
	int ret = KVW_CUDA(cuda->driver, &error, cuStreamWaitValue64, stream, address, value,
			   KVW_CUDA_WAIT_GEQ);

	return ret < 0 ? kvc_cuda_fail(ret, &error, "queueing a wait for a step") : 0;
}
