/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device: one thread that takes the head of a random stream among those that may go on. In order within
 * a stream; late, so that a missing wait shows; in another order between streams with every seed. It is
 * started with the first operation and never ends.
 */
#include "fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* How often words are looked at that another process may write. */
#define POLL_NS 50000u
/* The same for a host thread: an event may be another process's. */
#define LOOK_NS 500000u

static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static bool started;
static unsigned waiting; /* host threads that wait: nothing is delayed for them */
static uint64_t random_state;
static _Thread_local bool on_device;
static _Thread_local bool in_host_function;

bool fake_in_host_function(void)
{
	return in_host_function;
}

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/*
 * A stream that blocks goes on after what the legacy stream had before, and the legacy stream after all of
 * those.
 */
static bool held_back(const struct fake_stream *stream)
{
	if (stream->flags & KVW_CUDA_STREAM_NON_BLOCKING)
		return false;
	for (const struct fake_stream *other = fake_stream_first(); other; other = other->next) {
		if (other == stream || other->context != stream->context || !other->head ||
		    (other->flags & KVW_CUDA_STREAM_NON_BLOCKING) || !(other->legacy || stream->legacy))
			continue;
		if (other->head->sequence < stream->head->sequence)
			return true;
	}
	return false;
}

/* Counts into *polled the streams that wait for something, lowers *until to when the next may start. */
static bool may_run(const struct fake_stream *stream, uint64_t now, unsigned *polled, uint64_t *until)
{
	if (!stream->head || held_back(stream))
		return false;
	if (!waiting && now < stream->head->not_before_ns) {
		if (stream->head->not_before_ns < *until)
			*until = stream->head->not_before_ns;
		return false;
	}
	if (fake_op_ready(stream->head))
		return true;
	++*polled;
	return false;
}

static struct fake_stream *choose(uint64_t *until)
{
	struct fake_stream *chosen = NULL;
	uint64_t now = fake_now_ns();
	unsigned candidates = 0;
	unsigned polled = 0;

	*until = UINT64_MAX;
	for (struct fake_stream *stream = fake_stream_first(); stream; stream = stream->next)
		if (may_run(stream, now, &polled, until) && next_random() % ++candidates == 0)
			chosen = stream;
	if (polled && now + POLL_NS < *until)
		*until = now + POLL_NS;
	return chosen;
}

static void wait_for(pthread_cond_t *condition, uint64_t ns)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	ns += (uint64_t)at.tv_nsec;
	at.tv_sec += (time_t)(ns / 1000000000u);
	at.tv_nsec = (long)(ns % 1000000000u);
	pthread_cond_timedwait(condition, &fake_lock, &at);
}

static void sleep_until(uint64_t until)
{
	uint64_t now = fake_now_ns();

	if (until == UINT64_MAX)
		pthread_cond_wait(&work, &fake_lock);
	else
		wait_for(&work, until > now ? until - now : 0);
}

static struct fake_op *take_head(struct fake_stream *stream)
{
	struct fake_op *op = stream->head;

	stream->head = op->next;
	return op;
}

static unsigned check_target(const struct fake_op *op)
{
	/* Host memory that isn't registered is not in the list of ranges. */
	if (op->kind == FAKE_OP_WAIT_VALUE || !op->to || fake_range_check(op->to, op->bytes))
		return 0;
	return fake_range_writable(op->to, op->bytes) ? 0 : KVW_CUDA_ILLEGAL_ADDRESS;
}

/* The operation stays the stream's head while it runs: a stream with a head is not idle. */
static void run_head(struct fake_stream *stream)
{
	struct fake_op *op = stream->head;
	unsigned result = check_target(op);

	stream->busy = true;
	fake_range_unlock_all(true);
	pthread_mutex_unlock(&fake_lock);
	in_host_function = op->kind == FAKE_OP_HOST;
	if (!result)
		result = fake_op_run(op);
	in_host_function = false;
	pthread_mutex_lock(&fake_lock);
	fake_range_unlock_all(false);
	stream->busy = false;
	fake_self()->operations++;
	fake_op_free(take_head(stream));
	if (result)
		fake_context_lose(stream->context, result);
	pthread_cond_broadcast(&fake_changed);
}

static void *device_main(void *arg)
{
	uint64_t until;

	(void)arg;
	on_device = true;
	pthread_mutex_lock(&fake_lock);
	for (;;) {
		struct fake_stream *stream = choose(&until);

		if (stream)
			run_head(stream);
		else
			sleep_until(until);
	}
	return NULL;
}

static void start(void)
{
	sigset_t blocked;
	sigset_t before;
	pthread_t thread;

	started = true;
	random_state = fake_settings()->seed * 2 + 1;
	if (!fake_settings()->seed_given)
		fprintf(stderr, "fakecuda: KVP_SEED=%llu\n", (unsigned long long)fake_settings()->seed);
	sigfillset(&blocked);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	if (pthread_create(&thread, NULL, device_main, NULL))
		abort();
	pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void fake_executor_wake(void)
{
	if (!started)
		start();
	pthread_cond_signal(&work);
}

unsigned fake_wait(struct fake_context *context, bool (*idle)(void *), void *arg)
{
	waiting++;
	if (started)
		pthread_cond_signal(&work);
	while (!idle(arg) && !(context && context->sticky))
		wait_for(&fake_changed, LOOK_NS);
	waiting--;
	return context ? context->sticky : 0;
}

/* What is queued is dropped; an operation that runs ends by itself. */
static void drop_queue(struct fake_stream *stream)
{
	struct fake_op **from = stream->busy ? &stream->head->next : &stream->head;

	while (*from) {
		struct fake_op *op = *from;

		*from = op->next;
		fake_op_free(op);
	}
	stream->tail = stream->head;
}

void fake_context_lose(struct fake_context *context, unsigned code)
{
	if (!context->sticky)
		context->sticky = code;
	for (struct fake_stream *stream = fake_stream_first(); stream; stream = stream->next)
		if (stream->context == context)
			drop_queue(stream);
	pthread_cond_broadcast(&fake_changed);
}
