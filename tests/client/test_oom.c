/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Out of memory, everywhere: the n-th request of a client's whole life fails, n = 1, 2, .. until none does. Whatever call it hits says so,
 * nothing is left behind, and what was there before goes on.
 */
#include <stdlib.h>

#include "faulty_memory.h"
#include "fixture.h"

static const struct fake_options options = {.low = 4, .critical = 2, .high = 8};

/* Every call that may need memory is tried; where one fails the next is tried all the same. */
struct life {
	struct kvp_client *client;
	struct kvp_batch *batch;
	struct kvp_seq *seq;
	int errors;
};

static int told(struct life *life, int ret)
{
	if (ret < 0) {
		life->errors++;
		/* OpenSSL does not say why it has no context. */
		if (ret != -ENOMEM && ret != -EIO && ret != -KVP_ESTATE)
			life->errors += 1000;
	}
	return ret;
}

static void use(struct life *life)
{
	static const uint32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 8};
	struct kvp_batch_view view = {.size = sizeof(view)};
	int result = 0;

	/* Once more: a failure hits one call, not the next. */
	if (told(life, kvp_batch_create(life->client, NULL, &life->batch)))
		told(life, kvp_batch_create(life->client, NULL, &life->batch));
	told(life, kvp_open(life->client, &request, 1, WAIT_MS, &result, &life->seq));
	if (!life->seq || !life->batch)
		return;
	told(life, kvp_batch_set(life->batch, &life->seq, 1));
	told(life, kvp_batch_begin(life->batch, NULL, 0, 1, &view));
	kvp_step_done(life->client, 0, 1);
	told(life, kvp_batch_settle(life->batch, NULL, NULL, 0, 1));
	told(life, kvp_seq_close(life->seq));
	told(life, kvp_sync(life->client, WAIT_MS));
}

static void live(struct life *life, const char *path)
{
	struct kvp_connect_params connect = {.size = sizeof(connect), .path = path, .timeout_ms = WAIT_MS};
	struct kvp_attach_params attach = {.size = sizeof(attach), .max_seqs = 2, .max_seq_tokens = 32};
	struct kvp_pool_info info = {.size = sizeof(info)};

	if (told(life, kvp_connect(&connect, &life->client)))
		return;
	told(life, kvp_pool_info(life->client, NULL, WAIT_MS, &info));
	if (!told(life, kvp_attach(life->client, &attach)) || !told(life, kvp_attach(life->client, &attach)))
		use(life);
	kvp_close(life->client);
}

static bool session_ended(void *arg)
{
	struct fake_daemon *fake = arg;
	bool ended;

	pthread_mutex_lock(&fake->lock);
	ended = fake->socket_fd < 0;
	pthread_mutex_unlock(&fake->lock);
	return ended;
}

/* A client that failed right after its connect may be accepted, and ended, only later. */
struct quiet {
	struct fake_daemon *fake;
	int fds;
};

static bool all_is_closed(void *arg)
{
	const struct quiet *quiet = arg;

	return session_ended(quiet->fake) && kvt_count_fds() == quiet->fds;
}

static void the_nth_failure_is_told_and_leaves_nothing_behind(void **state)
{
	struct fake_daemon *fake = fake_start(&options);
	struct life warm = {0};
	uint64_t n, requests;
	int64_t live_before, mapped_before;
	uint32_t failures = 0;
	struct quiet quiet;

	(void)state;
	/* What OpenSSL makes once is made now. */
	live(&warm, fake->path);
	assert_int_equal(warm.errors, 0);
	kvt_wait_until(session_ended, fake);
	quiet = (struct quiet){.fake = fake, .fds = kvt_count_fds()};
	live_before = faulty_memory_live();
	mapped_before = faulty_memory_mapped();
	for (n = 1;; n++) {
		struct life life = {0};

		faulty_memory_watch(n);
		live(&life, fake->path);
		requests = faulty_memory_end();
		kvt_wait_until(all_is_closed, &quiet);
		if (faulty_memory_live() != live_before || faulty_memory_mapped() != mapped_before)
			print_error("after failure %llu of %llu: %lld allocations, %lld mappings more\n",
				    (unsigned long long)n, (unsigned long long)requests,
				    (long long)(faulty_memory_live() - live_before),
				    (long long)(faulty_memory_mapped() - mapped_before));
		assert_int_equal(faulty_memory_live(), live_before);
		assert_int_equal(faulty_memory_mapped(), mapped_before);
		if (!faulty_memory_failed())
			break;
		failures++;
		if (life.errors < 1 || life.errors >= 1000)
			print_error("failure %llu gave %d errors: %s\n", (unsigned long long)n, life.errors,
				    kvp_last_error());
		assert_in_range(life.errors, 1, 999);
	}
	/* The client, its two engines' worth of rows and hashers, five segments, the batch. */
	assert_true(failures > 20);
	assert_int_equal(fake->books.faults, 0);
	fake_stop(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_nth_failure_is_told_and_leaves_nothing_behind),
	};

	faulty_memory_init();
	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
