/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 64-bit words of host memory that a stream stores when it comes to them: by itself where the device can, else by a
 * function that the driver calls on the host.
 */
#ifndef KVPOOL_LIBCLIENT_WORDS_CUDA_H
#define KVPOOL_LIBCLIENT_WORDS_CUDA_H

#include <stdatomic.h>
#include <stdint.h>

struct kvc_cuda;
struct kvc_cuda_words;
struct kvw_cuda_stream;

/* The records of stores by the host that are on their way. */
int kvc_words_create(struct kvc_cuda_words **out);
void kvc_words_destroy(struct kvc_cuda_words *words);

/*
 * `word`, which the device has at `address`, becomes `value` behind what is queued; never less than it is. In the
 * context. -KVP_EBACKLOG: too many are on their way.
 */
int kvc_word_store(const struct kvc_cuda *cuda, struct kvw_cuda_stream *stream, _Atomic uint64_t *word,
		   uint64_t address, uint64_t value);
/*
 * The stream waits until the word has come to `value`, from 1 to 2^63 - 1, or is KVW_TIMELINE_POISON: the difference is taken as a signed number.
 * Only where cuda->has_words.
 */
int kvc_word_wait(const struct kvc_cuda *cuda, struct kvw_cuda_stream *stream, uint64_t address,
		  uint64_t value);

#endif
