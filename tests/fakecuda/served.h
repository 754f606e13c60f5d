/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon with a pool on the double's device, and raw engines of it: the protocol by hand, the memory mapped
 * by the driver, so that a test can leave out what the library would do.
 */
#ifndef KVPOOL_TESTS_FAKECUDA_SERVED_H
#define KVPOOL_TESTS_FAKECUDA_SERVED_H

#include "fixture.h"
#include "system/raw.h"

/* Blocks of 16 tokens, 256 bytes each. */
#define SERVED_BLOCK_BYTES 4096u
#define SERVED_BLOCK_WORDS (SERVED_BLOCK_BYTES / 4)
#define SERVED_BLOCKS 64u

/* Roles find the daemon by this variable. */
#define SERVED_SOCKET "SERVED_SOCKET"

/* Options of a daemon with pool "p" on cuda:0. */
#define SERVED_SHAPE                                                                                         \
	"--set=pool.p.block_tokens=16", "--set=pool.p.planes=k f16 1x128", "--set=pool.p.devices=cuda:0"
#define SERVED_POOL "--set=pool.p.blocks=64", SERVED_SHAPE
/* 196 MiB, four pieces. */
#define SERVED_LARGE_POOL "--set=pool.p.blocks=50000", SERVED_SHAPE

/* share: "ipc" or "fd"; grace_ms: a text. */
struct kvt_daemon *served_start(const char *share, const char *grace_ms);
/* Waits until nothing is left of any engine, checks the books, and that the daemon leaves nothing to the driver. */
void served_stop(struct kvt_daemon *daemon);
/* The daemon that a role was given. */
struct kvt_daemon *served_of_role(void);

struct served_engine {
	struct kvt_raw *raw;
	uint64_t pointer; /* of the pool */
	uint64_t words;   /* the timelines, for the device */
};

/* Attaches, maps pool and timelines into the current context, then says MAPPED. */
struct served_engine served_attach(const struct kvt_daemon *daemon);
/* As the library lets go: everything unmapped, the word, the lock, the socket. */
void served_detach(struct served_engine *engine);
/* The parts of it. */
void served_unmap(struct served_engine *engine);
void served_say_drained(struct served_engine *engine);

static inline uint64_t served_block(const struct served_engine *engine, int32_t id)
{
	return engine->pointer + (uint64_t)id * SERVED_BLOCK_BYTES;
}
static inline uint64_t served_word(const struct served_engine *engine, uint32_t timeline)
{
	return engine->words + timeline * 64u;
}

#endif
