/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the event loop's backends and its common part know of each other. Only loop.c,
 * loop_uring.c, loop_epoll.c and the conformance test include this.
 *
 * Watches lie in one array, allocated when the loop opens, so that no event allocates. The
 * kernel is given a token, never a pointer: slot number and the slot's generation. A
 * completion that comes after its watch was released finds another generation and is dropped.
 *
 * Life of a watch: added -> (armed <-> not armed) -> forgotten -> released. A backend whose
 * kernel requests outlive forget() keeps `armed` set until their last completion; the slot
 * is released only then.
 */
#ifndef KVPOOL_DAEMON_LOOP_OPS_H
#define KVPOOL_DAEMON_LOOP_OPS_H

#include "loop.h"

#include <stdbool.h>

enum kvd_watch_kind {
	KVD_WATCH_NONE, /* a free slot */
	KVD_WATCH_ACCEPT,
	KVD_WATCH_MESSAGE,
	KVD_WATCH_READY,
};

struct kvd_watch {
	enum kvd_watch_kind kind;
	int fd;
	uint32_t generation; /* counts the slot's lives */
	uint32_t cancels;    /* io_uring: how often its request was cancelled */
	uint64_t batch;      /* io_uring: the last batch of completions that delivered to it */
	bool armed;          /* the kernel reports on it */
	bool ended;          /* delivered end of file or an error: nothing follows */
	bool forgotten;
	bool paused; /* to be armed (or cancelled) again at kvd_loop.resume_us */
	union {
		kvd_accept_fn on_accept;
		kvd_message_fn on_message;
		kvd_ready_fn on_ready;
	};
	void *arg;
	struct kvd_watch *next_free;
};

struct kvd_loop;

struct kvd_loop_ops {
	size_t loop_bytes; /* of the backend's struct, which begins with struct kvd_loop */
	int (*open)(struct kvd_loop *loop, unsigned flags);
	/* Every watch is forgotten by then. Not called when open failed. */
	void (*close)(struct kvd_loop *loop);
	/* Lets the kernel report on `watch`; also after a pause. */
	int (*arm)(struct kvd_loop *loop, struct kvd_watch *watch);
	/*
	 * Undoes arm(). Leaves `armed` set when completions are still to come; with the last
	 * one the backend releases a forgotten watch.
	 */
	void (*disarm)(struct kvd_loop *loop, struct kvd_watch *watch);
	/* Waits and delivers once; callbacks, or a negative errno. May return 0 before `wait_us` passed. */
	int (*turn)(struct kvd_loop *loop, uint64_t wait_us);
};

/* What open() of the io_uring backend is asked for. */
#define KVD_URING_DEFER 1u    /* SINGLE_ISSUER | DEFER_TASKRUN */
#define KVD_URING_ONE_SHOT 2u /* as on a kernel without multishot accept and recv */

extern const struct kvd_loop_ops kvd_loop_uring_ops;
extern const struct kvd_loop_ops kvd_loop_epoll_ops;

/* A backend with its flags. */
struct kvd_loop_lane {
	const char *name;
	const struct kvd_loop_ops *ops;
	unsigned flags;
};

/* kvd_loop_open() without the choice. */
int kvd_loop_open_lane(const struct kvd_loop_lane *lane, const struct kvd_loop_params *params,
		       struct kvd_loop **out);

struct kvd_loop {
	const struct kvd_loop_lane *lane;
	struct kvd_watch *watches;
	struct kvd_watch *free_watches;
	uint32_t slots; /* in `watches`: twice max_watches, for those whose last completion is due */
	uint32_t live;  /* added and not forgotten */
	uint32_t max_watches;
	uint32_t max_message_bytes;
	uint64_t batch;     /* io_uring: counts what was ready at one look; 0 before the first */
	uint64_t stop_us;   /* when this turn's delivery ends */
	uint64_t resume_us; /* when paused watches are armed again; UINT64_MAX: none is paused */
};

/* Bit that kvd_watch_token() leaves clear, for the backend's own use. */
#define KVD_TOKEN_SPARE_BIT (UINT64_C(1) << 31)

/*
 * A turn delivers for so long, and ends with the callback that it is in: the rest stays where it is, in order, and is first in
 * the next turn.
 */
#define KVD_DELIVER_US 100u
void kvd_delivery_begin(struct kvd_loop *loop);
bool kvd_delivery_goes_on(const struct kvd_loop *loop);

/* Names the present life of `watch`. */
uint64_t kvd_watch_token(const struct kvd_loop *loop, const struct kvd_watch *watch);
/* The watch of `token`, or NULL when it was released since. */
struct kvd_watch *kvd_watch_find(struct kvd_loop *loop, uint64_t token);
/* Gives the slot of a forgotten watch back. */
void kvd_watch_release(struct kvd_loop *loop, struct kvd_watch *watch);
/* Arms `watch` again in about 100 ms: the kernel is short of descriptors or memory. */
void kvd_watch_pause(struct kvd_loop *loop, struct kvd_watch *watch);

#endif
