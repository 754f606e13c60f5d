/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device side of an attached client: the driver, the context that its work runs in, and what lies in it.
 * A client without it never loads the driver.
 *
 * The library has no thread of its own and leaves the caller's current context as it was: every function that
 * calls the driver enters the context and leaves it again.
 */
#ifndef KVPOOL_LIBCLIENT_CUDA_H
#define KVPOOL_LIBCLIENT_CUDA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/cuda_driver.h"
#include "ipc/limits.h"

struct kvc_cuda_kernels;
struct kvc_cuda_words;
struct kvc_device_pool;
struct kvc_peers;

/* Host memory that the device can reach. */
struct kvc_pinned {
	uint8_t *memory; /* NULL: none */
	uint64_t bytes;  /* registered, in pieces */
	uint64_t address;
};

struct kvc_cuda {
	struct kvw_cuda *driver;
	struct kvw_cuda_context *context;
	int device;
	bool retained;                    /* the context is the primary one, and a reference to it is ours */
	bool has_words;                   /* streams can store and wait for 64-bit words */
	struct kvc_cuda_kernels *kernels; /* NULL: this build has none */
	struct kvc_device_pool *pool;     /* NULL: the pool is the host's */
	struct kvc_pinned slots;          /* of the tables */
	struct kvc_pinned timelines;
	struct kvc_peers *peers;      /* other engines' timelines; NULL: the device can't wait for them */
	struct kvc_cuda_words *words; /* where has_words is false: words that a host function stores */
	_Atomic uint64_t queued[KVW_TIMELINES]; /* last step that a stream will store */
	uint64_t heartbeat; /* of the daemon, as the batch's thread saw it, and since when; 0: never looked */
	uint64_t heartbeat_ns;
};

/* Which context. */
struct kvc_cuda_choice {
	void *given;         /* by the caller, or NULL */
	const uint8_t *uuid; /* of the pool's device; NULL: any */
	const char *pool;    /* its name, for messages */
};

/* Loads driver and kernels. -ENODEV with a sentence when the context is another device's than the pool. */
int kvc_cuda_open(const struct kvc_cuda_choice *choice, struct kvc_cuda **out);
/* The kernels, when the attach is certain: the driver may wait for all of the context's work before it gives them up again. */
int kvc_cuda_load(struct kvc_cuda *cuda);
/* Unmaps, unpins, unloads; nothing may be queued any more. NULL is fine, and so is a forked child. */
void kvc_cuda_close(struct kvc_cuda *cuda);

/* Waits until the context has no work left. */
int kvc_cuda_quiet(const struct kvc_cuda *cuda);

/* The context becomes current until kvc_cuda_leave(). With an error's text. */
int kvc_cuda_enter(const struct kvc_cuda *cuda, bool *out_pushed);
void kvc_cuda_leave(const struct kvc_cuda *cuda, bool pushed);

/* Fails with the driver's sentence. A capture that was in the way is said to be one. */
int kvc_cuda_fail(int ret, const struct kvw_cuda_error *error, const char *what);
/* -KVP_ESTATE when the stream is being captured, with what to do instead. In the context. */
int kvc_cuda_check_capture(const struct kvc_cuda *cuda, struct kvw_cuda_stream *stream, const char *remedy);

/* In the context. Pieces are at most 64 GiB: more fails in one call. */
int kvc_pin(const struct kvc_cuda *cuda, void *memory, uint64_t bytes, const char *what,
	    struct kvc_pinned *out);
/* Of memory that this process may only read: not every device can. */
int kvc_pin_to_read(const struct kvc_cuda *cuda, void *memory, uint64_t bytes, const char *what,
		    struct kvc_pinned *out);
void kvc_unpin(const struct kvc_cuda *cuda, struct kvc_pinned *pinned);

#endif
