/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that writes the log, and the waits for it. All of it is static: a thread that standard error holds for ever is left
 * behind at the end, and nothing that it touches may go away before the process does.
 */
#include "log_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "log_ring.h"

enum state {
	DIRECT, /* the caller writes */
	QUEUED, /* the thread does */
	MUTE,   /* standard error took nothing in the time it had at the end */
};

static struct kvd_log_ring ring;
static _Atomic int state;
static _Atomic int stopping;
static _Atomic int flush_wanted;
static _Atomic uint64_t lost_direct;
static pthread_t thread;
static int wake_fd = -1; /* the thread sleeps in reading it */
static int idle_fd = -1; /* it found the ring empty after flush_wanted */
static _Thread_local bool is_writer;

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* Until `deadline_ms`; false: it passed, or the descriptor has ended. */
static bool wait_for(int fd, short events, uint64_t deadline_ms)
{
	struct pollfd entry = {.fd = fd, .events = events};
	uint64_t now;
	int ready;

	do {
		now = now_ms();
		ready = poll(&entry, 1, now < deadline_ms ? (int)(deadline_ms - now) : 0);
	} while (ready < 0 && errno == EINTR);
	return ready == 1 && (entry.revents & events);
}

static void ring_fd(int fd)
{
	uint64_t one = 1;
	ssize_t written = write(fd, &one, sizeof(one));

	(void)written;
}

static void take_rings(int fd)
{
	uint64_t rings;
	ssize_t got = read(fd, &rings, sizeof(rings));

	(void)got;
}

/* -------------------------------------------------------------- writing */

/* Only where somebody else made the terminal or pipe that we share non-blocking. */
static bool wait_for_room(void)
{
	struct pollfd entry = {.fd = STDERR_FILENO, .events = POLLOUT};

	return (poll(&entry, 1, -1) == 1 && (entry.revents & POLLOUT)) || errno == EINTR;
}

/* Nothing sensible can be done when the log itself can't be written. */
static void write_patiently(const char *line, size_t length)
{
	while (length) {
		ssize_t written = write(STDERR_FILENO, line, length);

		if (written > 0) {
			line += written;
			length -= (size_t)written;
		} else if (written == 0 || (errno != EINTR && (errno != EAGAIN || !wait_for_room()))) {
			return;
		}
	}
}

/* What is writable has room for a line, but for a terminal that is stopped in this moment. */
static void write_in_time(const char *line, size_t length, uint32_t wait_ms)
{
	ssize_t written;

	if (!wait_for(STDERR_FILENO, POLLOUT, now_ms() + wait_ms)) {
		atomic_fetch_add_explicit(&lost_direct, 1, memory_order_relaxed);
		return;
	}
	written = write(STDERR_FILENO, line, length);
	(void)written;
}

static void tell_lost(uint64_t lost)
{
	char line[KVD_LOG_LINE_BYTES];

	if (!lost)
		return;
	write_patiently(line,
			kvd_log_make(KVD_LOG_WARNING, line,
				     "%" PRIu64 " lines of the log lost here: standard error took no more",
				     lost));
}

/* -------------------------------------------------------------- the thread */

static bool write_next(void)
{
	const struct kvd_log_slot *slot = kvd_log_ring_first(&ring);

	if (!slot)
		return false;
	tell_lost(slot->lost);
	write_patiently(slot->text, slot->length);
	kvd_log_ring_next(&ring);
	return true;
}

/* The wish is taken before the look at the ring: what was queued before it is seen. */
static void tell_idle(void)
{
	if (!atomic_load(&flush_wanted) || !kvd_log_ring_empty(&ring))
		return;
	atomic_store(&flush_wanted, 0);
	ring_fd(idle_fd);
}

static void *write_lines(void *arg)
{
	(void)arg;
	is_writer = true;
	for (;;) {
		bool last = atomic_load(&stopping);

		if (write_next())
			continue;
		tell_lost(kvd_log_ring_take_lost(&ring));
		tell_idle();
		if (last && kvd_log_ring_empty(&ring))
			return NULL;
		take_rings(wake_fd);
	}
}

static int start_thread(void)
{
	sigset_t all;
	sigset_t before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&thread, NULL, write_lines, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -ret;
}

/* The thread is the parent's, and so are the lines in the ring. */
static void in_child(void)
{
	atomic_store(&state, DIRECT);
}

/* -------------------------------------------------------------- crashes */

/* What runs into the crash again, with the default action, is the instruction or abort(3) itself. */
static void on_crash(int number)
{
	int error = errno;

	(void)number;
	kvd_log_writer_flush();
	errno = error;
}

/* A sanitizer's handlers stay. */
static void catch_crashes(void)
{
	static const int numbers[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
	struct sigaction ours = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};
	struct sigaction before;
	size_t i;

	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (!sigaction(numbers[i], NULL, &before) && before.sa_handler == SIG_DFL)
			sigaction(numbers[i], &ours, NULL);
	}
}

static void let_crashes_be(void)
{
	static const int numbers[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
	struct sigaction before;
	size_t i;

	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (!sigaction(numbers[i], NULL, &before) && before.sa_handler == on_crash)
			signal(numbers[i], SIG_DFL);
	}
}

/* -------------------------------------------------------------- calls */

static int open_events(void)
{
	wake_fd = eventfd(0, EFD_CLOEXEC);
	if (wake_fd < 0)
		return -errno;
	idle_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return idle_fd < 0 ? -errno : 0;
}

static void close_events(void)
{
	if (wake_fd >= 0)
		close(wake_fd);
	if (idle_fd >= 0)
		close(idle_fd);
	wake_fd = -1;
	idle_fd = -1;
}

int kvd_log_writer_start(void)
{
	static bool fork_known;
	int ret;

	if (atomic_load(&state) != DIRECT)
		return 0;
	if (!fork_known && pthread_atfork(NULL, NULL, in_child))
		return -ENOMEM;
	fork_known = true;
	kvd_log_ring_init(&ring);
	atomic_store(&stopping, 0);
	atomic_store(&flush_wanted, 0);
	ret = open_events();
	if (!ret)
		ret = start_thread();
	if (ret) {
		close_events();
		return ret;
	}
	catch_crashes();
	atomic_store(&state, QUEUED);
	return 0;
}

/* Whether it was in time. */
static bool wait_idle(void)
{
	uint64_t deadline_ms = now_ms() + KVD_LOG_WAIT_MS;

	do {
		atomic_store(&flush_wanted, 1);
		ring_fd(wake_fd);
		if (!wait_for(idle_fd, POLLIN, deadline_ms))
			return false;
		take_rings(idle_fd);
	} while (!kvd_log_ring_empty(&ring));
	return true;
}

bool kvd_log_writer_flush(void)
{
	return atomic_load(&state) != QUEUED || is_writer || wait_idle();
}

/* The thread is told to end only when it has nothing to write, so that it can be waited for. */
void kvd_log_writer_stop(void)
{
	if (atomic_load(&state) != QUEUED)
		return;
	let_crashes_be();
	if (!wait_idle()) {
		atomic_store(&state, MUTE);
		pthread_detach(thread);
		return;
	}
	atomic_store(&state, DIRECT);
	atomic_store(&stopping, 1);
	ring_fd(wake_fd);
	pthread_join(thread, NULL);
	close_events();
}

void kvd_log_writer_put(const char *line, size_t length)
{
	switch (atomic_load_explicit(&state, memory_order_relaxed)) {
	case QUEUED:
		if (kvd_log_ring_put(&ring, line, length))
			ring_fd(wake_fd);
		break;
	case DIRECT:
		write_in_time(line, length, KVD_LOG_WAIT_MS);
		break;
	default:
		break;
	}
}

/* What comes now is not queued any more: nobody would wait for it. */
void kvd_log_writer_put_last(const char *line, size_t length)
{
	bool flushed = kvd_log_writer_flush();

	atomic_store(&state, DIRECT);
	write_in_time(line, length, flushed ? KVD_LOG_WAIT_MS : 0);
}

uint64_t kvd_log_writer_lost(void)
{
	return atomic_load_explicit(&ring.lost_ever, memory_order_relaxed) +
	       atomic_load_explicit(&lost_direct, memory_order_relaxed);
}
