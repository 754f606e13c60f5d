/* SPDX-License-Identifier: Apache-2.0 */
/* The spacing of questions to a pool's lock bytes, on a clock of the test's own. */
#include "daemon/proofs.h"

#include "support.h"

/* Asks `sessions` times at `cost_ns` each, from a clock at 1 s; the time until all were asked. */
static uint64_t ask_all(uint32_t sessions, uint64_t cost_ns)
{
	struct kvd_proofs proofs = {0};
	uint64_t start_us = 1000000;
	uint64_t now_us = start_us;

	while (sessions) {
		if (kvd_proofs_allowed(&proofs, now_us)) {
			now_us += cost_ns / 1000;
			kvd_proofs_spent(&proofs, now_us, cost_ns);
			sessions--;
		} else {
			now_us++;
		}
	}
	return now_us - start_us;
}

static void cheap_questions_of_all_engines_are_asked_within_milliseconds(void **state)
{
	(void)state;
	assert_in_range(ask_all(1, 2000), 0, 2);
	assert_in_range(ask_all(64, 2000), 64 * 2, 5000);
	assert_in_range(ask_all(1024, 2000), 1024 * 2, 50000);
}

static void dear_questions_take_a_twentieth_of_the_time(void **state)
{
	(void)state;
	/* 31 ms each; no pause is waited for after the last. */
	assert_in_range(ask_all(11, 31000000), 10 * 20 * 31000, 10 * 22 * 31000 + 31000);
	/* Costs between: 200 us. */
	assert_in_range(ask_all(101, 200000), 100 * 20 * 200, 100 * 22 * 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cheap_questions_of_all_engines_are_asked_within_milliseconds),
		cmocka_unit_test(dear_questions_take_a_twentieth_of_the_time),
	};

	kvt_watchdog(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
