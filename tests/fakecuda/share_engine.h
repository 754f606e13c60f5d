/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine process under the double that does what the test orders over a socket, one thing at a time: so several of them, with a daemon of
 * their own, do things in an order that the test fixes.
 */
#ifndef KVPOOL_TESTS_FAKECUDA_SHARE_ENGINE_H
#define KVPOOL_TESTS_FAKECUDA_SHARE_ENGINE_H

#include <stdint.h>
#include <sys/types.h>

#include "tests/system/harness.h"

#define SHARE_BLOCK_TOKENS 16u
#define SHARE_NO_END 1u
#define SHARE_MATCHED 3u /* blocks that SHARE_READ copies */

enum share_what {
	SHARE_ATTACH, /* connects and attaches; number: device whose context is given, 0: none is given; value: the weights of its identity, 0: none */
	SHARE_OPEN,   /* number: tokens, value: first of them, flags: KVP_OPEN_*; gives the tokens matched */
	SHARE_WRITE, /* queues `value` into all blocks of the sequence's unmatched tokens, ends the step by the stream, publishes; number: the timeline, flags: SHARE_NO_END */
	SHARE_COUNT_OTHER, /* words of the sequence's blocks that are not `value`, in stream order */
	SHARE_READY,       /* kvp_seq_ready() */
	SHARE_WAIT_READY,  /* until it is not 0 */
	SHARE_CLOSE,       /* the sequence; what follows is not waited for */
	SHARE_GATE,        /* the stream stops here until SHARE_PASS */
	SHARE_PASS,        /* opens the gate and waits for the stream */
	SHARE_SYNC,        /* kvp_sync() */
	SHARE_LEAVE,       /* kvp_close(); gives what is left in the driver */
	SHARE_TRY, /* connect, attach, leave, with the number-th call of the driver failing; gives what is left */
	SHARE_CHECK, /* begins an empty step of a batch: what a batch call says now */
	/*
	 * Queues a step of the sequence's unmatched token and, as its kernel, copies of the matched blocks; number: 1 as a batch, 0 by
	 * kvp_seq_wait_on(). Again after an error: from the staging on.
	 */
	SHARE_READ,
	SHARE_DONE,      /* gives whether that step is done */
	SHARE_WAIT_DONE, /* until it is */
	SHARE_SETTLE,    /* its outcome, as it was begun */
	SHARE_COPIED,    /* words of the copies that are not `value` */
	SHARE_END,       /* the end, by the stream, of a step that was written without one */
	SHARE_CAPTURE, /* number: 1: another stream is captured from now on, 0: no more; -EBUSY: the capture was spoilt */
	SHARE_EXIT
};

struct share_order {
	uint32_t what;
	uint32_t number;
	uint32_t value;
	uint32_t flags;
};

struct share_answer {
	int ret; /* of the library */
	uint32_t zero;
	uint64_t number;
	char text[400];
};

struct share_engine {
	pid_t pid;
	int socket_fd;
};

/* In main(), when kvt_cuda_role() is "engine". Its end code. */
int share_engine_main(void);

struct share_engine share_engine_start(const struct kvt_daemon *daemon);
struct share_answer share_ask(const struct share_engine *engine, struct share_order order);
void share_engine_stop(struct share_engine *engine);

#endif
