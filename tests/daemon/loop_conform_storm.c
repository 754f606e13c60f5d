/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance of the event loop: connections and bells come, talk and go at random, from
 * outside and from within callbacks. What is not forgotten gets all that was sent, in
 * order; what is forgotten gets nothing, and its peer sees it go.
 */
#include "loop_conform.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAIRS 60
#define STEPS 20000

struct pair {
	struct conn conn;
	struct bell bell;
	bool open;
	uint32_t sent;
	unsigned rung; /* since this many callbacks at least one is due */
	struct storm *storm;
};

struct storm {
	struct kvd_loop *loop;
	struct kvt_rng rng;
	struct pair pairs[PAIRS];
};

static struct pair *any_pair(struct storm *storm)
{
	return &storm->pairs[kvt_rng_below(&storm->rng, PAIRS)];
}

/* Forgets only: it may run within a callback of the same pair. */
static void forget_pair(struct pair *pair)
{
	if (!pair->open)
		return;
	conn_forget(&pair->conn);
	bell_forget(&pair->bell);
}

static void sometimes_forget(struct storm *storm, struct pair *self)
{
	uint64_t dice = kvt_rng_below(&storm->rng, 200);

	if (dice == 0)
		forget_pair(self);
	else if (dice == 1)
		forget_pair(any_pair(storm));
}

static void on_bytes(struct conn *conn, const uint8_t *bytes, int length)
{
	struct pair *pair = conn->hook_arg;
	uint32_t number;

	if (length > 0) {
		assert_true(length >= (int)sizeof(number));
		memcpy(&number, bytes, sizeof(number));
		assert_int_equal(number, conn->messages - 1);
	}
	sometimes_forget(pair->storm, pair);
}

static void on_bell(struct bell *bell)
{
	struct pair *pair = bell->hook_arg;

	sometimes_forget(pair->storm, pair);
}

static void open_pair(struct storm *storm, struct pair *pair)
{
	pair->storm = storm;
	conn_open(storm->loop, &pair->conn);
	pair->conn.hook = on_bytes;
	pair->conn.hook_arg = pair;
	bell_open(storm->loop, &pair->bell);
	pair->bell.hook = on_bell;
	pair->bell.hook_arg = pair;
	pair->open = true;
	pair->sent = 0;
	pair->rung = 0;
}

static void talk(struct storm *storm, struct pair *pair)
{
	uint8_t bytes[600] = {0};
	uint64_t burst = kvt_rng_below(&storm->rng, 8) ? 3 : 400;

	for (; burst > 0 && pair->conn.far_fd >= 0; burst--) {
		size_t length = sizeof(pair->sent) + kvt_rng_below(&storm->rng, 500);

		memcpy(bytes, &pair->sent, sizeof(pair->sent));
		if (!pair->conn.watch || !conn_try_send(&pair->conn, bytes, length))
			return;
		pair->sent++;
	}
}

static void ring_pair(struct pair *pair)
{
	bell_ring(&pair->bell);
	pair->rung = pair->bell.rings + 1;
}

static void hang_up(struct pair *pair)
{
	if (pair->conn.far_fd >= 0)
		close(pair->conn.far_fd);
	pair->conn.far_fd = -1;
}

/* The far end stays: it must see the near one go. */
static void drop_pair(struct storm *storm, struct pair *pair)
{
	struct pollfd far_end = {.fd = pair->conn.far_fd};

	forget_pair(pair);
	close(pair->conn.near_fd);
	close(pair->bell.fd);
	pair->open = false;
	if (far_end.fd < 0)
		return;
	while (poll(&far_end, 1, 0) == 0)
		assert_true(kvd_loop_turn(storm->loop, 1000) >= 0);
	assert_true(far_end.revents & POLLHUP);
	close(far_end.fd);
}

static void step(struct storm *storm)
{
	struct pair *pair = any_pair(storm);
	uint64_t dice = kvt_rng_below(&storm->rng, 100);

	if (!pair->open)
		open_pair(storm, pair);
	else if (dice < 50)
		talk(storm, pair);
	else if (dice < 80)
		ring_pair(pair);
	else if (dice < 82)
		hang_up(pair);
	else if (dice < 90)
		drop_pair(storm, pair);
	else
		assert_true(kvd_loop_turn(storm->loop, 0) >= 0);
}

static void assert_all_delivered(const struct pair *pair)
{
	if (!pair->open)
		return;
	if (pair->conn.watch) {
		assert_int_equal(pair->conn.messages, pair->sent);
		assert_int_equal(pair->conn.ends, pair->conn.far_fd < 0);
	}
	if (pair->bell.watch)
		assert_true(pair->bell.rings >= pair->rung);
}

static void storm_loses_and_invents_nothing(void **state)
{
	struct storm *storm = calloc(1, sizeof(*storm));

	storm->loop = *state;
	storm->rng.state = kvt_seed();
	for (int i = 0; i < STEPS; i++) {
		step(storm);
		if (i % 2000 == 1999) {
			settle(storm->loop);
			for (int k = 0; k < PAIRS; k++)
				assert_all_delivered(&storm->pairs[k]);
		}
	}
	for (int i = 0; i < PAIRS; i++)
		if (storm->pairs[i].open)
			drop_pair(storm, &storm->pairs[i]);
	free(storm);
}

int run_storm_tests(void)
{
	const struct CMUnitTest tests[] = {
		CONFORM_TEST(storm_loses_and_invents_nothing),
	};

	return cmocka_run_group_tests_name("storm", tests, NULL, NULL);
}
