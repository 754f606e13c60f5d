/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that watches the daemon's end. */
#include "ending.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	struct timespec deadline;
	uint32_t timeout_ms;
	bool watched;
	bool over;
	char at[200];
} ending = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void end_process(void)
{
	kvd_log_last("the end has taken more than %" PRIu32
		     " ms (stop_timeout_ms) and still waits for %s: ending "
		     "without it; its memory goes with this process, when the driver lets it end",
		     ending.timeout_ms, ending.at);
	_exit(KVD_ENDING_STATUS);
}

static void *watch(void *arg)
{
	int ret = 0;

	pthread_mutex_lock(&ending.lock);
	while (!ending.over && ret != ETIMEDOUT)
		ret = pthread_cond_timedwait(&ending.changed, &ending.lock, &ending.deadline);
	if (!ending.over)
		end_process();
	pthread_mutex_unlock(&ending.lock);
	return arg;
}

/* By the clock that no administrator sets. */
static void set_deadline(uint32_t timeout_ms)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&ending.changed, &attributes);
	pthread_condattr_destroy(&attributes);
	clock_gettime(CLOCK_MONOTONIC, &ending.deadline);
	ending.deadline.tv_sec += timeout_ms / 1000;
	ending.deadline.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (ending.deadline.tv_nsec < 1000000000)
		return;
	ending.deadline.tv_sec++;
	ending.deadline.tv_nsec -= 1000000000;
}

void kvd_ending_begin(uint32_t timeout_ms)
{
	sigset_t all;
	sigset_t before;
	int ret;

	if (!timeout_ms)
		return;
	set_deadline(timeout_ms);
	ending.timeout_ms = timeout_ms;
	ending.over = false;
	snprintf(ending.at, sizeof(ending.at), "its threads");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&ending.thread, NULL, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	ending.watched = !ret;
	if (ret)
		kvd_log_warning("nothing bounds this end: no thread for it: %s", strerror(ret));
}

void kvd_ending_at(const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&ending.lock);
	va_start(args, format);
	vsnprintf(ending.at, sizeof(ending.at), format, args);
	va_end(args);
	pthread_mutex_unlock(&ending.lock);
}

void kvd_ending_over(void)
{
	if (!ending.watched)
		return;
	pthread_mutex_lock(&ending.lock);
	ending.over = true;
	pthread_cond_signal(&ending.changed);
	pthread_mutex_unlock(&ending.lock);
	pthread_join(ending.thread, NULL);
	pthread_cond_destroy(&ending.changed);
	ending.watched = false;
}
