/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop on epoll, for where io_uring is refused. Sockets are level-triggered, so
 * that a turn may leave some of a busy peer's messages for the next one; watches are
 * edge-triggered, so that an eventfd nobody reads does not keep the loop awake.
 */
#include "loop_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_PER_TURN 64
/* Messages or connections taken from one descriptor a turn. */
#define BURST 16

struct kvd_epoll {
	struct kvd_loop base; /* first: loops are passed by its address */
	int fd;
	bool coarse;     /* no epoll_pwait2() here: waits are whole milliseconds */
	uint8_t *buffer; /* max_message_bytes; every message passes through it */
	/* [next, count) were not come to in the last turn; an edge is told only once, so they must not be lost. */
	struct epoll_event events[EVENTS_PER_TURN];
	int next;
	int count;
};

static struct kvd_epoll *of_base(struct kvd_loop *base)
{
	return (struct kvd_epoll *)base;
}

static int epoll_open(struct kvd_loop *base, unsigned flags)
{
	struct kvd_epoll *loop = of_base(base);
	int ret;

	(void)flags;
	loop->fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->fd < 0)
		return -errno;
	loop->buffer = malloc(base->max_message_bytes);
	if (!loop->buffer) {
		ret = -ENOMEM;
		goto err_close;
	}
	return 0;

err_close:
	close(loop->fd);
	return ret;
}

static void epoll_close(struct kvd_loop *base)
{
	struct kvd_epoll *loop = of_base(base);

	free(loop->buffer);
	close(loop->fd);
}

/* A listener that was handed to us may block; accept4() must not. */
static int make_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0))
		return -errno;
	return 0;
}

static int epoll_arm(struct kvd_loop *base, struct kvd_watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN};
	int ret;

	if (watch->kind == KVD_WATCH_READY)
		event.events |= EPOLLET;
	if (watch->kind == KVD_WATCH_ACCEPT) {
		ret = make_nonblocking(watch->fd);
		if (ret < 0)
			return ret;
	}
	event.data.u64 = kvd_watch_token(base, watch);
	if (epoll_ctl(of_base(base)->fd, EPOLL_CTL_ADD, watch->fd, &event) < 0)
		return -errno;
	watch->armed = true;
	return 0;
}

static void epoll_disarm(struct kvd_loop *base, struct kvd_watch *watch)
{
	epoll_ctl(of_base(base)->fd, EPOLL_CTL_DEL, watch->fd, NULL);
	watch->armed = false;
}

/* One connection. Returns callbacks, or a negative errno when there is nothing more to take. */
static int accept_one(struct kvd_loop *base, struct kvd_watch *watch)
{
	int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		watch->on_accept(watch->arg, fd);
		return 1;
	}
	switch (errno) {
	case EINTR:
	case ECONNABORTED:
		return 0;
	case EAGAIN:
		return -EAGAIN;
	default: /* out of descriptors or memory: level-triggered, it would spin */
		epoll_disarm(base, watch);
		kvd_watch_pause(base, watch);
		return -EAGAIN;
	}
}

/* One message, end of file or error. Returns as accept_one(). */
static int receive_one(struct kvd_loop *base, struct kvd_watch *watch)
{
	uint8_t *buffer = of_base(base)->buffer;
	/* MSG_TRUNC: the message's true length. No control buffer: the kernel drops attached descriptors. */
	ssize_t length = recv(watch->fd, buffer, base->max_message_bytes, MSG_DONTWAIT | MSG_TRUNC);

	if (length < 0) {
		if (errno == EINTR)
			return 0;
		if (errno == EAGAIN)
			return -EAGAIN;
		length = -errno;
	} else if (length > (ssize_t)base->max_message_bytes) {
		length = -EMSGSIZE;
	}
	if (length <= 0) {
		watch->ended = true;
		epoll_disarm(base, watch);
	}
	watch->on_message(watch->arg, length > 0 ? buffer : NULL, (int)length);
	return 1;
}

/* Returns as accept_one(). */
static int deliver_one(struct kvd_loop *base, struct kvd_watch *watch)
{
	switch (watch->kind) {
	case KVD_WATCH_ACCEPT:
		return accept_one(base, watch);
	case KVD_WATCH_MESSAGE:
		return receive_one(base, watch);
	default:
		watch->on_ready(watch->arg);
		return 1;
	}
}

/* Delivers a burst, or until the watch is forgotten, ended or empty. An edge is one callback. */
static int deliver(struct kvd_loop *base, uint64_t token)
{
	struct kvd_watch *watch = kvd_watch_find(base, token);
	int left = watch && watch->kind == KVD_WATCH_READY ? 1 : BURST;
	int callbacks = 0;
	int ret;

	for (; left > 0 && watch && watch->armed; left--) {
		ret = deliver_one(base, watch);
		if (ret < 0)
			break;
		callbacks += ret;
		if (!kvd_delivery_goes_on(base))
			break;
		watch = kvd_watch_find(base, token);
	}
	return callbacks;
}

/* Rounds up: a wait may be late, never early. */
static int wait_coarsely(struct kvd_epoll *loop, struct epoll_event *events, uint64_t wait_us)
{
	uint64_t ms = wait_us / 1000 + (wait_us % 1000 != 0);

	return epoll_wait(loop->fd, events, EVENTS_PER_TURN, ms > INT_MAX ? -1 : (int)ms);
}

static int wait_finely(struct kvd_epoll *loop, struct epoll_event *events, uint64_t wait_us)
{
	struct timespec wait = {.tv_sec = (time_t)(wait_us / 1000000u),
				.tv_nsec = (long)(wait_us % 1000000u) * 1000};

	return epoll_pwait2(loop->fd, events, EVENTS_PER_TURN, wait_us == UINT64_MAX ? NULL : &wait, NULL);
}

/* Events, or a negative errno. */
static int wait_for_events(struct kvd_epoll *loop, struct epoll_event *events, uint64_t wait_us)
{
	int count = -1;

	if (!loop->coarse) {
		count = wait_finely(loop, events, wait_us);
		/* Kernels before 5.11 lack it; some filters answer EPERM to what they don't know. */
		loop->coarse = count < 0 && (errno == ENOSYS || errno == EPERM);
	}
	if (loop->coarse)
		count = wait_coarsely(loop, events, wait_us);
	return count < 0 ? -errno : count;
}

static int epoll_turn(struct kvd_loop *base, uint64_t wait_us)
{
	struct kvd_epoll *loop = of_base(base);
	int callbacks = 0;
	int ret;

	if (loop->next == loop->count) {
		ret = wait_for_events(loop, loop->events, wait_us);
		if (ret < 0)
			return ret;
		loop->next = 0;
		loop->count = ret;
	}
	kvd_delivery_begin(base);
	while (loop->next < loop->count) {
		callbacks += deliver(base, loop->events[loop->next++].data.u64);
		if (!kvd_delivery_goes_on(base))
			break;
	}
	return callbacks;
}

const struct kvd_loop_ops kvd_loop_epoll_ops = {
	.loop_bytes = sizeof(struct kvd_epoll),
	.open = epoll_open,
	.close = epoll_close,
	.arm = epoll_arm,
	.disarm = epoll_disarm,
	.turn = epoll_turn,
};
