/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop on io_uring: multishot accept, multishot receive into a ring of shared
 * buffers, multishot poll: while no request is made or ends, a turn is one system call.
 *
 * Requests outlive what asked for them: closing a descriptor does not end them, and a
 * cancelled one still completes. So a watch keeps its slot until its last completion
 * (`armed`), and completions for a watch that was forgotten or ended only give back what
 * they carry. A request ends whenever a completion lacks CQE_F_MORE (the completion queue
 * was full, no buffer was left, the kernel chose so): then it is asked for again.
 *
 * Fairness: the buffers are shared, and a peer that floods takes as many as it can. Each
 * goes back when its callback returned. Who found none (ENOBUFS) is armed again before the
 * next batch (what is ready at one look; it may take several turns), those that got nothing
 * in this one before those that did.
 */
#include "loop_buffers.h"
#include "loop_ops.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Small: rings count against RLIMIT_MEMLOCK, per user. More requests at once take more submissions. */
#define SQ_ENTRIES 64u
#define MAX_CANCELS 16u
/* close() waits so long for a last completion, so often. */
#define DRAIN_US 10000u
#define DRAIN_TURNS 100

/* Completions with these tokens belong to no watch's request. */
#define TOKEN_CANCEL KVD_TOKEN_SPARE_BIT /* or-ed to the token of the watch */
#define TOKEN_NOBODY UINT64_MAX

/* Who waits for a buffer, in order. A slot is in at most one of them: its request ended. */
struct waiting {
	uint64_t *tokens;
	uint32_t count;
};

struct kvd_uring {
	struct kvd_loop base; /* first: loops are passed by its address */
	struct io_uring ring;
	struct kvd_buffers buffers;
	uint32_t armed;       /* requests whose last completion is due */
	bool one_shot_accept; /* this kernel has no multishot for it */
	bool one_shot_receive;
	unsigned left;         /* completions of the batch that were not come to */
	struct waiting hungry; /* got nothing in the batch */
	struct waiting fed;
};

static struct kvd_uring *of_base(struct kvd_loop *base)
{
	return (struct kvd_uring *)base;
}

/* ---- opening and closing ---- */

static int open_ring(struct kvd_uring *loop, unsigned flags)
{
	const unsigned needed = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG | IORING_FEAT_CQE_SKIP;
	struct io_uring_params params = {
		.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL,
		.cq_entries = loop->base.max_watches,
	};
	int ret;

	if (params.cq_entries < 2 * SQ_ENTRIES)
		params.cq_entries = 2 * SQ_ENTRIES;
	if (flags & KVD_URING_DEFER)
		params.flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
	ret = io_uring_queue_init_params(SQ_ENTRIES, &loop->ring, &params);
	if (ret < 0)
		return ret;
	if ((params.features & needed) != needed) {
		io_uring_queue_exit(&loop->ring);
		return -EINVAL;
	}
	return 0;
}

static int open_waiting(struct kvd_uring *loop)
{
	const size_t slots = loop->base.slots;

	loop->hungry.tokens = calloc(2 * slots, sizeof(*loop->hungry.tokens));
	if (!loop->hungry.tokens)
		return -ENOMEM;
	loop->fed.tokens = loop->hungry.tokens + slots;
	return 0;
}

static int uring_open(struct kvd_loop *base, unsigned flags)
{
	struct kvd_uring *loop = of_base(base);
	int ret;

	loop->one_shot_accept = loop->one_shot_receive = flags & KVD_URING_ONE_SHOT;
	ret = open_waiting(loop);
	if (ret < 0)
		return ret;
	ret = open_ring(loop, flags);
	if (ret < 0)
		goto err_free;
	ret = kvd_buffers_open(&loop->buffers, &loop->ring, base->max_message_bytes);
	if (ret < 0)
		goto err_exit;
	/* A filter may grant the ring and refuse its use. */
	ret = io_uring_submit_and_get_events(&loop->ring);
	if (ret < 0)
		goto err_close_buffers;
	return 0;

err_close_buffers:
	kvd_buffers_close(&loop->buffers, &loop->ring);
err_exit:
	io_uring_queue_exit(&loop->ring);
err_free:
	free(loop->hungry.tokens);
	return ret;
}

/* ---- requests ---- */

/* A free submission entry, or NULL when the kernel takes none of the 64 that wait. */
static struct io_uring_sqe *next_sqe(struct kvd_uring *loop)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&loop->ring);

	if (!sqe) {
		io_uring_submit(&loop->ring);
		sqe = io_uring_get_sqe(&loop->ring);
	}
	return sqe;
}

static void prepare_accept(const struct kvd_uring *loop, struct io_uring_sqe *sqe, int fd)
{
	if (loop->one_shot_accept)
		io_uring_prep_accept(sqe, fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	else
		io_uring_prep_multishot_accept(sqe, fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* Without a control buffer the kernel drops descriptors that a peer attached. */
static void prepare_receive(const struct kvd_uring *loop, struct io_uring_sqe *sqe, int fd)
{
	if (loop->one_shot_receive)
		io_uring_prep_recv(sqe, fd, NULL, 0, 0);
	else
		io_uring_prep_recv_multishot(sqe, fd, NULL, 0, 0);
	sqe->buf_group = KVD_BUFFER_GROUP;
	sqe->flags |= IOSQE_BUFFER_SELECT;
}

static int uring_arm(struct kvd_loop *base, struct kvd_watch *watch)
{
	struct kvd_uring *loop = of_base(base);
	struct io_uring_sqe *sqe = next_sqe(loop);

	if (!sqe)
		return -EAGAIN;
	if (watch->kind == KVD_WATCH_ACCEPT)
		prepare_accept(loop, sqe, watch->fd);
	else if (watch->kind == KVD_WATCH_MESSAGE)
		prepare_receive(loop, sqe, watch->fd);
	else
		io_uring_prep_poll_multishot(sqe, watch->fd, POLLIN);
	sqe->user_data = kvd_watch_token(base, watch);
	watch->armed = true;
	loop->armed++;
	return 0;
}

static void arm_again(struct kvd_uring *loop, struct kvd_watch *watch)
{
	if (uring_arm(&loop->base, watch) < 0)
		kvd_watch_pause(&loop->base, watch);
}

static void note_disarmed(struct kvd_uring *loop, struct kvd_watch *watch)
{
	watch->armed = false;
	loop->armed--;
}

/*
 * Takes back a request that the kernel has not seen: submitted later, it would act on
 * whatever has the descriptor's number by then.
 */
static bool withdraw(struct kvd_uring *loop, uint64_t token)
{
	struct io_uring_sq *sq = &loop->ring.sq;

	for (unsigned i = sq->sqe_tail - io_uring_sq_ready(&loop->ring); i != sq->sqe_tail; i++) {
		struct io_uring_sqe *sqe = &sq->sqes[i & (SQ_ENTRIES - 1)];

		if (sqe->user_data != token)
			continue;
		io_uring_prep_nop(sqe);
		sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
		sqe->user_data = TOKEN_NOBODY;
		return true;
	}
	return false;
}

/* By token, not by descriptor: the number, or the open file, may serve another watch as well. */
static void cancel(struct kvd_uring *loop, struct kvd_watch *watch)
{
	uint64_t token = kvd_watch_token(&loop->base, watch);
	struct io_uring_sqe *sqe = next_sqe(loop);

	if (!sqe) {
		kvd_watch_pause(&loop->base, watch);
		return;
	}
	io_uring_prep_cancel64(sqe, token, 0);
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	sqe->user_data = token | TOKEN_CANCEL;
	watch->cancels++;
}

static void uring_disarm(struct kvd_loop *base, struct kvd_watch *watch)
{
	struct kvd_uring *loop = of_base(base);

	if (withdraw(loop, kvd_watch_token(base, watch)))
		note_disarmed(loop, watch);
	else if (!watch->cancels)
		cancel(loop, watch);
}

/* A request can be between two places when its cancellation looks for it, and be missed. */
static void on_cancel_failed(struct kvd_uring *loop, uint64_t token)
{
	struct kvd_watch *watch = kvd_watch_find(&loop->base, token);

	if (watch && watch->armed && watch->cancels < MAX_CANCELS)
		cancel(loop, watch);
}

static void wait_for_buffer(struct kvd_uring *loop, const struct kvd_watch *watch)
{
	struct waiting *list = watch->batch == loop->base.batch ? &loop->fed : &loop->hungry;

	list->tokens[list->count++] = kvd_watch_token(&loop->base, watch);
}

static void arm_waiting(struct kvd_uring *loop, struct waiting *list)
{
	for (uint32_t i = 0; i < list->count; i++) {
		struct kvd_watch *watch = kvd_watch_find(&loop->base, list->tokens[i]);

		if (watch && !watch->armed)
			arm_again(loop, watch);
	}
	list->count = 0;
}

/* ---- completions ---- */

static int on_accepted(struct kvd_uring *loop, struct kvd_watch *watch, int result)
{
	if (result >= 0) {
		if (!watch->armed)
			arm_again(loop, watch);
		watch->on_accept(watch->arg, result);
		return 1;
	}
	if (watch->armed)
		return 0;
	if (result == -ECONNABORTED || result == -EINTR) {
		arm_again(loop, watch);
	} else if (result == -EINVAL && !loop->one_shot_accept) {
		loop->one_shot_accept = true;
		arm_again(loop, watch);
	} else {
		kvd_watch_pause(&loop->base, watch);
	}
	return 0;
}

static void end(struct kvd_uring *loop, struct kvd_watch *watch)
{
	watch->ended = true;
	if (watch->armed)
		uring_disarm(&loop->base, watch);
}

static int deliver_message(struct kvd_uring *loop, struct kvd_watch *watch, const uint8_t *bytes, int length)
{
	if (length > (int)loop->base.max_message_bytes)
		length = -EMSGSIZE;
	if (length <= 0)
		end(loop, watch);
	else if (!watch->armed)
		arm_again(loop, watch);
	watch->batch = loop->base.batch;
	watch->on_message(watch->arg, length > 0 ? bytes : NULL, length);
	return 1;
}

static int on_received(struct kvd_uring *loop, struct kvd_watch *watch, const struct io_uring_cqe *cqe)
{
	if (cqe->res == -ENOBUFS) {
		wait_for_buffer(loop, watch);
		return 0;
	}
	if (cqe->res == -EINVAL && !loop->one_shot_receive) {
		loop->one_shot_receive = true;
		arm_again(loop, watch);
		return 0;
	}
	return deliver_message(loop, watch, kvd_buffers_filled(&loop->buffers, cqe->flags), cqe->res);
}

/*
 * All completions of a batch were posted before its first callback, so one callback answers
 * every edge among them.
 */
static int on_polled(struct kvd_uring *loop, struct kvd_watch *watch, int result)
{
	if (!watch->armed && result < 0)
		kvd_watch_pause(&loop->base, watch);
	else if (!watch->armed)
		arm_again(loop, watch);
	if (result < 0 || watch->batch == loop->base.batch)
		return 0;
	watch->batch = loop->base.batch;
	watch->on_ready(watch->arg);
	return 1;
}

/* What comes for a watch that is no longer to be called. */
static void discard(struct kvd_uring *loop, struct kvd_watch *watch, int result)
{
	if (watch->kind == KVD_WATCH_ACCEPT && result >= 0)
		close(result);
	if (watch->forgotten && !watch->armed)
		kvd_watch_release(&loop->base, watch);
}

/* Callbacks come last: they may forget the watch. */
static int dispatch(struct kvd_uring *loop, struct kvd_watch *watch, const struct io_uring_cqe *cqe)
{
	if (!(cqe->flags & IORING_CQE_F_MORE))
		note_disarmed(loop, watch);
	if (watch->forgotten || watch->ended) {
		discard(loop, watch, cqe->res);
		return 0;
	}
	switch (watch->kind) {
	case KVD_WATCH_ACCEPT:
		return on_accepted(loop, watch, cqe->res);
	case KVD_WATCH_MESSAGE:
		return on_received(loop, watch, cqe);
	default:
		return on_polled(loop, watch, cqe->res);
	}
}

static int complete(struct kvd_uring *loop, const struct io_uring_cqe *cqe)
{
	struct kvd_watch *watch;
	int callbacks = 0;

	if (cqe->user_data == TOKEN_NOBODY)
		return 0;
	if (cqe->user_data & TOKEN_CANCEL) {
		on_cancel_failed(loop, cqe->user_data);
		return 0;
	}
	watch = kvd_watch_find(&loop->base, cqe->user_data);
	if (watch)
		callbacks = dispatch(loop, watch, cqe);
	kvd_buffers_return(&loop->buffers, cqe->flags);
	return callbacks;
}

/*
 * Submits what is prepared; when nothing is, and nothing has completed, waits. Never both:
 * a signal would go unseen, since the call then tells only of the submission.
 * Returns 0 or a negative errno.
 */
static int enter(struct kvd_uring *loop, uint64_t wait_us)
{
	struct __kernel_timespec wait = {.tv_sec = (long long)(wait_us / 1000000u),
					 .tv_nsec = (long long)(wait_us % 1000000u) * 1000};
	struct io_uring_cqe *cqe;
	int ret;

	if (wait_us == 0 || io_uring_sq_ready(&loop->ring) || io_uring_cq_ready(&loop->ring))
		ret = io_uring_submit_and_get_events(&loop->ring);
	else
		ret = io_uring_submit_and_wait_timeout(&loop->ring, &cqe, 1,
						       wait_us == UINT64_MAX ? NULL : &wait, NULL);
	/* Nothing came; or the kernel wants completions taken, or memory freed, before it accepts more. */
	if (ret == -ETIME || ret == -EBUSY || ret == -EAGAIN)
		return 0;
	return ret < 0 ? ret : 0;
}

static int uring_turn(struct kvd_loop *base, uint64_t wait_us)
{
	struct kvd_uring *loop = of_base(base);
	int callbacks = 0;
	int ret;

	if (!loop->left) {
		arm_waiting(loop, &loop->hungry);
		arm_waiting(loop, &loop->fed);
	}
	ret = enter(loop, wait_us);
	if (ret < 0)
		return ret;
	if (!loop->left) {
		base->batch++;
		loop->left = io_uring_cq_ready(&loop->ring);
	}
	kvd_delivery_begin(base);
	while (loop->left > 0) {
		struct io_uring_cqe *entry;
		struct io_uring_cqe cqe;

		if (io_uring_peek_cqe(&loop->ring, &entry) < 0)
			break;
		cqe = *entry;
		io_uring_cqe_seen(&loop->ring, entry);
		loop->left--;
		callbacks += complete(loop, &cqe);
		if (!kvd_delivery_goes_on(base))
			break;
	}
	return callbacks;
}

/* The kernel tears a ring down later, on its own thread: so the descriptors are let go of before. */
static void uring_close(struct kvd_loop *base)
{
	struct kvd_uring *loop = of_base(base);

	for (int i = 0; loop->armed && i < DRAIN_TURNS; i++)
		uring_turn(base, DRAIN_US);
	kvd_buffers_close(&loop->buffers, &loop->ring);
	io_uring_queue_exit(&loop->ring);
	free(loop->hungry.tokens);
}

const struct kvd_loop_ops kvd_loop_uring_ops = {
	.loop_bytes = sizeof(struct kvd_uring),
	.open = uring_open,
	.close = uring_close,
	.arm = uring_arm,
	.disarm = uring_disarm,
	.turn = uring_turn,
};
