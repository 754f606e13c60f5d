/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the loop's conformance suite share: the loop under test, and one
 * connection of which the loop holds the near end and the test the far end.
 */
#ifndef KVPOOL_TEST_LOOP_CONFORM_H
#define KVPOOL_TEST_LOOP_CONFORM_H

#include "daemon/loop.h"
#include "support.h"

#define MAX_MESSAGE 65536
/* Long enough never to pass on a loaded machine; the watchdog ends a test that hangs. */
#define LONG_US 1000000u

/* Opens the backend under test. */
int conform_open(uint32_t max_watches, struct kvd_loop **out);

/* Around every test: *state is an open loop of 512 watches; no descriptor may be left behind. */
int conform_setup(void **state);
int conform_teardown(void **state);
#define CONFORM_TEST(name) cmocka_unit_test_setup_teardown(name, conform_setup, conform_teardown)

struct conn {
	struct kvd_loop *loop;
	struct kvd_watch *watch; /* NULL: forgotten */
	int near_fd;
	int far_fd;
	unsigned messages;
	unsigned ends; /* end of file and errors */
	int last;      /* length or error of the last callback */
	unsigned in_turn;
	/* Called for each message and end, after it was counted. */
	void (*hook)(struct conn *conn, const uint8_t *bytes, int length);
	void *hook_arg;
};

/* A fresh pair whose near end `loop` receives from. */
void conn_open(struct kvd_loop *loop, struct conn *conn);
/* Registers `near_fd` (set by the caller, as all else) with the loop. */
void conn_receive(struct conn *conn);
/* Forgets, closes both ends. */
void conn_close(struct conn *conn);
void conn_forget(struct conn *conn);
/* Sends `length` bytes; true when they fitted into the socket's buffer. */
bool conn_try_send(struct conn *conn, const void *bytes, size_t length);
void conn_send(struct conn *conn, const void *bytes, size_t length);

/* Turns until conn counted so many. */
void conn_await_messages(struct conn *conn, unsigned count);
void conn_await_end(struct conn *conn);

/* Turns the loop until nothing is ready. Returns the callbacks. */
int settle(struct kvd_loop *loop);

/* An eventfd that the loop watches. */
struct bell {
	struct kvd_loop *loop;
	struct kvd_watch *watch;
	int fd;
	unsigned rings; /* callbacks */
	void (*hook)(struct bell *bell);
	void *hook_arg;
};

void bell_open(struct kvd_loop *loop, struct bell *bell);
void bell_close(struct bell *bell);
/* Watches `fd` (set by the caller). */
void bell_watch(struct bell *bell);
void bell_forget(struct bell *bell);
void bell_ring(struct bell *bell);

/* The suite's parts. */
int run_message_tests(void);
int run_watch_tests(void);
int run_forget_tests(void);
int run_limit_tests(void);
int run_storm_tests(void);
int run_time_tests(void);

#endif
