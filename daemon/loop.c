/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop's common part: choice of the backend, the table of watches, pauses, and
 * the clock of a turn. What the kernel is asked for is in loop_uring.c and loop_epoll.c.
 */
#include "loop.h"

#include "loop_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>

#define PAUSE_US 100000u
/* Far above any message of the protocol: bounds what the backends allocate for receiving. */
#define MAX_MESSAGE_BYTES (1u << 20)
/* More descriptors than one process can have by default (fs.nr_open). */
#define MAX_WATCHES (1u << 20)
/* About 35 years: beyond it a wait is for ever, so that no sum with the clock overflows 64 bits of ns. */
#define FOREVER_US (UINT64_C(1) << 50)

static const struct kvd_loop_lane lanes[] = {
	[KVD_LOOP_IO_URING] = {"io_uring", &kvd_loop_uring_ops, KVD_URING_DEFER},
	[KVD_LOOP_IO_URING_PLAIN] = {"io_uring_plain", &kvd_loop_uring_ops, 0},
	[KVD_LOOP_EPOLL] = {"epoll", &kvd_loop_epoll_ops, 0},
};

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* Slots in ascending order: the first watch gets the first one. */
static void link_free_slots(struct kvd_loop *loop)
{
	for (uint32_t i = loop->slots; i > 0; i--) {
		loop->watches[i - 1].next_free = loop->free_watches;
		loop->free_watches = &loop->watches[i - 1];
	}
}

static int create(const struct kvd_loop_lane *lane, const struct kvd_loop_params *params,
		  struct kvd_loop **out)
{
	struct kvd_loop *loop = calloc(1, lane->ops->loop_bytes);

	if (!loop)
		return -ENOMEM;
	loop->lane = lane;
	loop->max_watches = params->max_watches;
	loop->max_message_bytes = params->max_message_bytes;
	loop->slots = 2 * params->max_watches;
	loop->resume_us = UINT64_MAX;
	loop->watches = calloc(loop->slots, sizeof(*loop->watches));
	if (!loop->watches) {
		free(loop);
		return -ENOMEM;
	}
	link_free_slots(loop);
	*out = loop;
	return 0;
}

static void destroy(struct kvd_loop *loop)
{
	free(loop->watches);
	free(loop);
}

int kvd_loop_open_lane(const struct kvd_loop_lane *lane, const struct kvd_loop_params *params,
		       struct kvd_loop **out)
{
	struct kvd_loop *loop;
	int ret;

	if (!params->max_watches || params->max_watches > MAX_WATCHES || !params->max_message_bytes ||
	    params->max_message_bytes > MAX_MESSAGE_BYTES)
		return -EINVAL;
	ret = create(lane, params, &loop);
	if (ret < 0)
		return ret;
	ret = lane->ops->open(loop, lane->flags);
	if (ret < 0) {
		destroy(loop);
		return ret;
	}
	*out = loop;
	return 0;
}

/* Errors that say "not this backend, here", rather than "no loop at all". */
static bool is_refusal(int error)
{
	switch (-error) {
	case EPERM:
	case ENOSYS:
	case EACCES:
	case EINVAL:
	case ENOMEM:
	case EMFILE:
		return true;
	default:
		return false;
	}
}

int kvd_loop_open(const struct kvd_loop_params *params, struct kvd_loop **out)
{
	int ret;

	if (params->backend > KVD_LOOP_EPOLL)
		return -EINVAL;
	if (params->backend != KVD_LOOP_AUTO)
		return kvd_loop_open_lane(&lanes[params->backend], params, out);
	for (unsigned i = KVD_LOOP_IO_URING; i <= KVD_LOOP_EPOLL; i++) {
		ret = kvd_loop_open_lane(&lanes[i], params, out);
		if (!is_refusal(ret))
			break;
	}
	return ret;
}

void kvd_loop_close(struct kvd_loop *loop)
{
	if (!loop)
		return;
	for (uint32_t i = 0; i < loop->slots; i++) {
		struct kvd_watch *watch = &loop->watches[i];

		if (watch->kind != KVD_WATCH_NONE && !watch->forgotten)
			kvd_loop_forget(loop, watch);
	}
	loop->lane->ops->close(loop);
	destroy(loop);
}

const char *kvd_loop_name(const struct kvd_loop *loop)
{
	return loop->lane->name;
}

void kvd_delivery_begin(struct kvd_loop *loop)
{
	loop->stop_us = now_us() + KVD_DELIVER_US;
}

bool kvd_delivery_goes_on(const struct kvd_loop *loop)
{
	return now_us() < loop->stop_us;
}

uint64_t kvd_watch_token(const struct kvd_loop *loop, const struct kvd_watch *watch)
{
	return (uint64_t)watch->generation << 32 | (uint64_t)(watch - loop->watches);
}

struct kvd_watch *kvd_watch_find(struct kvd_loop *loop, uint64_t token)
{
	uint32_t slot = (uint32_t)token & (uint32_t)~KVD_TOKEN_SPARE_BIT;

	if (slot >= loop->slots || loop->watches[slot].generation != token >> 32)
		return NULL;
	return &loop->watches[slot];
}

void kvd_watch_release(struct kvd_loop *loop, struct kvd_watch *watch)
{
	watch->kind = KVD_WATCH_NONE;
	watch->paused = false;
	watch->generation++;
	watch->next_free = loop->free_watches;
	loop->free_watches = watch;
}

void kvd_watch_pause(struct kvd_loop *loop, struct kvd_watch *watch)
{
	uint64_t resume_us = now_us() + PAUSE_US;

	watch->paused = true;
	if (resume_us < loop->resume_us)
		loop->resume_us = resume_us;
}

/* Arms what is paused once the first of it is due. Rare, so a walk over all slots is cheap enough. */
static void resume(struct kvd_loop *loop, uint64_t now)
{
	if (now < loop->resume_us)
		return;
	loop->resume_us = UINT64_MAX;
	for (uint32_t i = 0; i < loop->slots; i++) {
		struct kvd_watch *watch = &loop->watches[i];

		if (!watch->paused)
			continue;
		watch->paused = false;
		if (watch->armed)
			loop->lane->ops->disarm(loop, watch);
		else if (loop->lane->ops->arm(loop, watch) < 0)
			kvd_watch_pause(loop, watch);
	}
}

/* `model` holds kind, fd, callback and argument. */
static int add(struct kvd_loop *loop, const struct kvd_watch *model, struct kvd_watch **out)
{
	struct kvd_watch *watch = loop->free_watches;
	uint32_t generation;
	int ret;

	if (!watch || loop->live == loop->max_watches)
		return -ENOSPC;
	if (fcntl(model->fd, F_GETFD) < 0)
		return -errno;
	loop->free_watches = watch->next_free;
	generation = watch->generation;
	*watch = *model;
	watch->generation = generation;
	ret = loop->lane->ops->arm(loop, watch);
	if (ret < 0) {
		kvd_watch_release(loop, watch);
		return ret;
	}
	loop->live++;
	*out = watch;
	return 0;
}

int kvd_loop_listen(struct kvd_loop *loop, int fd, kvd_accept_fn on_accept, void *arg, struct kvd_watch **out)
{
	struct kvd_watch model = {.kind = KVD_WATCH_ACCEPT, .fd = fd, .on_accept = on_accept, .arg = arg};

	return add(loop, &model, out);
}

int kvd_loop_receive(struct kvd_loop *loop, int fd, kvd_message_fn on_message, void *arg,
		     struct kvd_watch **out)
{
	struct kvd_watch model = {.kind = KVD_WATCH_MESSAGE, .fd = fd, .on_message = on_message, .arg = arg};

	return add(loop, &model, out);
}

int kvd_loop_watch(struct kvd_loop *loop, int fd, kvd_ready_fn on_ready, void *arg, struct kvd_watch **out)
{
	struct kvd_watch model = {.kind = KVD_WATCH_READY, .fd = fd, .on_ready = on_ready, .arg = arg};

	return add(loop, &model, out);
}

void kvd_loop_forget(struct kvd_loop *loop, struct kvd_watch *watch)
{
	watch->forgotten = true;
	loop->live--;
	if (watch->armed)
		loop->lane->ops->disarm(loop, watch);
	if (!watch->armed)
		kvd_watch_release(loop, watch);
}

int kvd_loop_turn(struct kvd_loop *loop, uint64_t wait_us)
{
	uint64_t now = now_us();
	uint64_t end = wait_us < FOREVER_US ? now + wait_us : UINT64_MAX;
	uint64_t until;
	int ret;

	do {
		resume(loop, now);
		until = end < loop->resume_us ? end : loop->resume_us;
		ret = loop->lane->ops->turn(loop, until == UINT64_MAX ? until : until - now);
		now = now_us();
	} while (ret == 0 && now < end);
	return ret == -EINTR ? 0 : ret;
}
