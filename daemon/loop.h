/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop: what kvpoold waits on, behind eight calls. Two backends serve three
 * lanes: io_uring with DEFER_TASKRUN, plain io_uring, and epoll where io_uring is refused.
 * Above this header no line knows which one runs; tests/daemon/loop_conform.c holds all
 * three to the same behaviour.
 *
 * One thread owns a loop: the one that opened it makes every call.
 */
#ifndef KVPOOL_DAEMON_LOOP_H
#define KVPOOL_DAEMON_LOOP_H

#include <stddef.h>
#include <stdint.h>

enum kvd_loop_backend {
	KVD_LOOP_AUTO,           /* the first of the others that the kernel grants */
	KVD_LOOP_IO_URING,       /* SINGLE_ISSUER | DEFER_TASKRUN */
	KVD_LOOP_IO_URING_PLAIN, /* kernels before 6.1 */
	KVD_LOOP_EPOLL,
};

struct kvd_loop;
struct kvd_watch; /* one registered descriptor */

/* A connection was accepted; the callee owns `fd` (CLOEXEC, non-blocking). */
typedef void (*kvd_accept_fn)(void *arg, int fd);
/*
 * One message of a SEQPACKET socket. `length` > 0: the bytes, valid during the call.
 * 0: end of file. < 0: negative errno; -EMSGSIZE: the peer sent more than `max_message`
 * bytes. After 0 or an error the watch delivers nothing more; forget it.
 * Descriptors that a peer attaches are discarded.
 */
typedef void (*kvd_message_fn)(void *arg, const uint8_t *bytes, int length);
/* `fd` became readable. Edge-triggered: delivered once for each change, never read by the loop. */
typedef void (*kvd_ready_fn)(void *arg);

struct kvd_loop_params {
	enum kvd_loop_backend backend;
	uint32_t max_watches;       /* descriptors registered at once; sizes the completion queue */
	uint32_t max_message_bytes; /* of kvd_loop_receive() */
};

/*
 * Opens the backend that was asked for; AUTO falls through DEFER, plain, epoll on
 * EPERM, ENOSYS, EACCES, EINVAL, ENOMEM and EMFILE. Returns 0, or a negative errno
 * of the named backend.
 */
int kvd_loop_open(const struct kvd_loop_params *params, struct kvd_loop **out);
/* Forgets every watch. NULL is a no-op. */
void kvd_loop_close(struct kvd_loop *loop);
/* "io_uring", "io_uring_plain" or "epoll". */
const char *kvd_loop_name(const struct kvd_loop *loop);

/*
 * Accepts on listening socket `fd` until forgotten. EMFILE and the like pause it for 100 ms;
 * it never ends by itself. Returns, as the next two, 0 or a negative errno; -ENOSPC:
 * max_watches are registered.
 */
int kvd_loop_listen(struct kvd_loop *loop, int fd, kvd_accept_fn on_accept, void *arg,
		    struct kvd_watch **out);
/* Receives messages of connected SEQPACKET socket `fd` until end of file, an error, or forgotten. */
int kvd_loop_receive(struct kvd_loop *loop, int fd, kvd_message_fn on_message, void *arg,
		     struct kvd_watch **out);
/* Watches `fd` (pidfd, eventfd, pipe) for readability. */
int kvd_loop_watch(struct kvd_loop *loop, int fd, kvd_ready_fn on_ready, void *arg, struct kvd_watch **out);
/*
 * Ends a watch, also from within a callback. After it returns its callback is never called
 * again, and `fd` may be closed; not before.
 */
void kvd_loop_forget(struct kvd_loop *loop, struct kvd_watch *watch);

/*
 * One turn: waits until something is ready or `wait_us` passed (0: just looks, UINT64_MAX: for ever),
 * then delivers what is ready, a bounded number of callbacks a descriptor, so that no peer
 * starves another, and for about 100 us: the rest comes first in the next turn, which does not wait then. Returns the number of callbacks, or a negative errno. EINTR is a turn without callbacks.
 */
int kvd_loop_turn(struct kvd_loop *loop, uint64_t wait_us);

#endif
