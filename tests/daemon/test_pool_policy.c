/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The eviction policy alone.
 */
#include <errno.h>

#include "books.h"

#define BLOCKS 16

static void policies_are_found_by_name(void **unused)
{
	(void)unused;
	assert_ptr_equal(kvd_policy_find("lru"), &kvd_policy_lru);
	assert_null(kvd_policy_find("mru"));
	assert_null(kvd_policy_find(""));
	assert_null(kvd_policy_find(NULL));
	assert_string_equal(kvd_policy_names(), kvd_policy_lru.name);
}

/* Against an array in order of arrival. */
static void lru_keeps_the_order_of_arrival(void **unused)
{
	const struct kvd_policy_ops *ops = &kvd_policy_lru;
	struct kvt_rng rng = {.state = kvt_seed()};
	struct kvd_policy *lru;
	int32_t order[BLOCKS];
	uint32_t count = 0;
	uint32_t i, j;

	(void)unused;
	assert_int_equal(ops->create(BLOCKS, &lru), 0);
	assert_int_equal(ops->victim(lru), -1);
	for (i = 0; i < 20000; i++) {
		int32_t id = (int32_t)kvt_rng_below(&rng, BLOCKS);

		for (j = 0; j < count && order[j] != id; j++)
			;
		assert_int_equal(ops->contains(lru, id), j < count);
		if (j < count) {
			ops->remove(lru, id);
			for (count--; j < count; j++)
				order[j] = order[j + 1];
		} else {
			ops->insert(lru, id);
			order[count++] = id;
		}
		assert_int_equal(ops->victim(lru), count ? order[0] : -1);
		assert_int_equal(ops->check(lru, count), 0);
		assert_int_equal(ops->check(lru, count + 1), -EUCLEAN);
	}
	ops->destroy(lru);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(policies_are_found_by_name),
		cmocka_unit_test(lru_keeps_the_order_of_arrival),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
