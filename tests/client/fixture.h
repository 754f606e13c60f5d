/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client attached to a fake daemon, and the calls that every test of sequences repeats.
 */
#ifndef KVPOOL_TEST_CLIENT_FIXTURE_H
#define KVPOOL_TEST_CLIENT_FIXTURE_H

#include <errno.h>

#include <kvpool/kvpool.h>

#include "ipc/hash.h"

#include "support.h"

#include "fake_daemon.h"

#define WAIT_MS 20000u

struct fixture {
	int fds; /* open before */
	struct fake_daemon *fake;
	struct kvp_client *client;
};

/* Fails the test with kvp_last_error() when `call` is not 0. */
#define assert_ok(call) assert_ok_at(call, #call, __FILE__, __LINE__)
void assert_ok_at(int ret, const char *call, const char *file, int line);
#define assert_error(call, error) assert_int_equal(call, -(error))

/* Blocks of 4 tokens; lease marks low, critical, high as given. */
struct fixture *fixture_open(const struct fake_options *options, const struct kvp_attach_params *params);
/* Checks that the fake saw no fault, and that no descriptor is left. */
void fixture_close(struct fixture *fixture);

struct kvp_client *fixture_connect(struct fake_daemon *fake);

/* Opens one sequence with tokens base, base + 1, ..; `reserve` as in kvp_open_request. */
struct kvp_seq *fixture_seq(struct fixture *fixture, uint32_t base, uint32_t tokens, uint32_t max_cached,
			    uint32_t reserve);
/* Stages and settles the `n` next tokens (base + position), as one step that is done at once. */
void fixture_advance(struct fixture *fixture, struct kvp_seq *seq, uint32_t base, uint32_t n);
/* Extends by `tokens` with a deadline of 0; returns when the daemon has answered, which no call has taken in yet. */
void fixture_extend_late(struct fixture *fixture, struct kvp_seq *seq, uint32_t tokens);
/* Chained hashes of `count` blocks of tokens base, base + 1, .. */
void fixture_hash(uint32_t base, uint32_t count, uint8_t out[][KVW_SHA256_BYTES]);
struct kvp_seq_info fixture_info(const struct kvp_seq *seq);
struct kvp_lease_info fixture_lease(struct fixture *fixture);
struct kvp_block_info fixture_block(const struct kvp_seq *seq, uint32_t index);

#endif
