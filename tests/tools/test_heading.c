/* SPDX-License-Identifier: Apache-2.0 */
/* The lines before a replay: what they say, and that they fit a terminal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"
#include "tools/replay/heading.h"

static struct rep_options options = {
	.batch = 8, .heads = 4, .attention_every = 16, .compare_every = 64, .engines = 3};
static struct rep_trace trace = {.block_tokens = 512, .count = 12031};
static const struct rep_run run = {.options = &options, .trace = &trace, .engines = 3};

static struct rep_pool_state good_pool(void)
{
	return (struct rep_pool_state){.counted = true,
				       .name = "main",
				       .memory = "4k",
				       .policy = "lru",
				       .event_loop = "epoll",
				       .blocks = 60000,
				       .block_tokens = 64,
				       .bytes = 4400000000,
				       .kv_planes = 1,
				       .has_latent = true};
}

static const char *caught(const struct rep_pool_state *pool)
{
	static char text[4096];
	FILE *file = tmpfile();
	int err = dup(STDERR_FILENO);
	ssize_t length;

	dup2(fileno(file), STDERR_FILENO);
	rep_heading(&run, pool);
	dup2(err, STDERR_FILENO);
	close(err);
	length = pread(fileno(file), text, sizeof(text) - 1, 0);
	assert_true(length > 0);
	text[length] = '\0';
	fclose(file);
	return text;
}

/* Broken lines are joined for the comparison. */
static const char *joined(const char *text)
{
	static char out[4096];
	size_t at = 0;

	for (; *text; text++)
		if (*text != '\n' && (*text != ' ' || (at && out[at - 1] != ' ')))
			out[at++] = *text;
	out[at] = '\0';
	return out;
}

static void assert_fits(const char *text)
{
	while (*text) {
		size_t span = strcspn(text, "\n");

		if (span > 80)
			fail_msg("%zu columns: %.*s", span, (int)span, text);
		text += span + 1;
	}
}

static void says_what_runs_and_what_is_switched_off(void **state)
{
	struct rep_pool_state pool = good_pool();
	const char *text;

	(void)state;
	snprintf(pool.off, sizeof(pool.off),
		 "io_uring with DEFER_TASKRUN (Operation not permitted): the event loop is epoll; hugetlb "
		 "pages "
		 "for pool 'main': it has 4k pages");
	text = caught(&pool);
	assert_fits(text);
	text = joined(text);
	assert_non_null(
		strstr(text, "pool 'main': 60,000 blocks of 64 tokens, 4.4 GB on 4k pages, policy lru"));
	assert_non_null(strstr(text,
			       "event loop epoll; not to be had here: io_uring with DEFER_TASKRUN (Operation "
			       "not permitted): the event loop is epoll; hugetlb pages"));
	assert_non_null(strstr(text, "12,031 requests, 512 tokens an id"));
	assert_non_null(strstr(text, "engines: 3, batch 8, 4 heads, attention by "));
}

static void says_when_nothing_is_switched_off(void **state)
{
	struct rep_pool_state pool = good_pool();

	(void)state;
	assert_non_null(strstr(joined(caught(&pool)), "event loop epoll; nothing is switched off"));
}

static void says_what_this_user_may_not_read(void **state)
{
	struct rep_pool_state pool = good_pool();
	const char *text;

	(void)state;
	pool.counted = false;
	pool.policy[0] = pool.event_loop[0] = '\0';
	text = joined(caught(&pool));
	assert_non_null(strstr(text, "may not read its counters"));
	assert_null(strstr(text, "policy"));
}

static void says_why_there_is_no_attention(void **state)
{
	struct rep_pool_state pool = good_pool();

	(void)state;
	pool.has_latent = false;
	assert_non_null(strstr(joined(caught(&pool)), "no attention (the pool has no latent plane)"));
	options.attention_every = 0;
	pool.has_latent = true;
	assert_non_null(strstr(joined(caught(&pool)), "batch 8, no attention, system"));
	options.attention_every = 16;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(says_what_runs_and_what_is_switched_off),
		cmocka_unit_test(says_when_nothing_is_switched_off),
		cmocka_unit_test(says_what_this_user_may_not_read),
		cmocka_unit_test(says_why_there_is_no_attention),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
