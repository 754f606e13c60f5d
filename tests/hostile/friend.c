/* SPDX-License-Identifier: Apache-2.0 */
#include "friend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/error.h>

#include "board.h"
#include "content.h"
#include "foe.h"
#include "program.h"

#define CHAINS 64u
#define BLOCKS 4u

struct friend_client {
	struct kvt_daemon daemon;
	const char *pool;
	enum kvt_friend number;
	struct kvt_board *board;
	struct kvt_raw *raw;
	uint64_t block_bytes;
	struct kvt_rng rng;
};

static void attach(struct friend_client *client)
{
	struct kvw_msg_ATTACH message = kvt_attach_message();

	message.pool = kvw_text_of(client->pool);
	client->raw = kvt_raw_hello(&client->daemon);
	assert_int_equal(kvt_raw_attach(client->raw, &message), 0);
	kvt_raw_map(client->raw);
	client->block_bytes = kvt_block_bytes(client->raw, client->pool);
}

/* On the attacked pool the bytes are anybody's. */
static void verify(const struct friend_client *client, uint32_t row, uint64_t chain, uint32_t count)
{
	const struct kvw_answer *answers = kvt_answers(client->raw, row);
	uint32_t i;

	if (client->number != KVT_FRIEND_OWN_POOL)
		return;
	for (i = 0; i < count; i++)
		assert_true(kvt_holds_block(client->raw, client->block_bytes, answers[i].id, chain, i));
}

static void write_new(const struct friend_client *client, uint64_t chain, uint32_t first, uint32_t count)
{
	const struct kvw_answer *answers = kvt_answers(client->raw, 0);
	uint32_t i;

	for (i = first; i < first + count; i++)
		kvt_write_block(client->raw, client->block_bytes, answers[i].id, chain, i);
}

/* False: refused for want of quota, which the hostile client shares when it can't be another user. */
static bool cycle(struct friend_client *client)
{
	struct kvt_raw *raw = client->raw;
	uint64_t chain = 1 + kvt_rng_below(&client->rng, CHAINS);
	struct kvw_completion open = kvt_open(raw, 0, chain, BLOCKS, BLOCKS);
	struct kvw_completion done;

	if (open.status == -KVP_EQUOTA)
		return false;
	assert_int_equal(open.status, 0);
	assert_int_equal(open.matched + open.granted, BLOCKS);
	verify(client, 0, chain, open.matched);
	write_new(client, chain, open.matched, open.granted);
	done = kvt_publish(raw, 0, open.hold, open.matched, open.granted, 0, 0);
	assert_int_equal(done.status, 0);
	assert_int_equal(done.granted, open.granted);
	/* It holds them, so they are there. */
	done = kvt_open(raw, 1, chain, BLOCKS, 0);
	assert_int_equal(done.status, 0);
	assert_int_equal(done.matched, BLOCKS);
	verify(client, 1, chain, BLOCKS);
	kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_RELEASE, .hold = done.hold});
	kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_RELEASE, .hold = open.hold});
	return true;
}

static void be_friendly(void *arg)
{
	struct friend_client *client = arg;
	struct kvt_board *board = client->board;

	attach(client);
	cycle(client);
	atomic_fetch_add(&board->ready, 1);
	while (!atomic_load(&board->end)) {
		uint32_t phase = atomic_load(&board->phase);
		uint64_t start_ns = kvt_now_ns();

		if (cycle(client))
			kvt_latency_add(&board->latency[client->number][phase], kvt_now_ns() - start_ns);
		else
			atomic_fetch_add(&board->refusals[client->number], 1);
	}
	kvt_drain(client->raw);
	kvt_raw_close(client->raw);
}

void kvt_friend_main(int argc, char **argv)
{
	struct friend_client client = {.board = NULL};

	if (argc != 5 || strcmp(argv[1], "--friend") != 0)
		return;
	kvt_watchdog(900);
	client.board = kvt_board_open();
	if (!client.board)
		exit(1);
	snprintf(client.daemon.socket, sizeof(client.daemon.socket), "%s", argv[2]);
	client.pool = argv[3];
	client.number = argv[4][0] == '0' ? KVT_FRIEND_OWN_POOL : KVT_FRIEND_SAME_POOL;
	client.rng.state = client.number;
	exit(kvt_run_body(be_friendly, &client));
}
