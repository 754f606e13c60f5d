/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors and structs with a size: what needs no daemon.
 */
#include <string.h>

#include "libclient/error.h"
#include "libclient/params.h"

#include "fixture.h"

static void every_error_has_its_name_and_text(void **state)
{
	(void)state;
#define X(code, number, text)                                                                                \
	assert_string_equal(kvp_error_name(-number), #code);                                                 \
	assert_string_equal(kvp_error_name(number), #code);                                                  \
	assert_string_equal(kvp_error_text(-number), text);
	KVP_ERROR_MAP(X)
#undef X
	assert_string_equal(kvp_error_name(-EINVAL), "EINVAL");
	assert_string_equal(kvp_error_text(-EINVAL), strerror(EINVAL));
	assert_string_equal(kvp_error_name(0), "OK");
	assert_string_equal(kvp_error_name(-30000), "UNKNOWN");
	assert_non_null(kvp_error_text(INT32_MIN));
}

static void the_last_error_is_the_threads_own_sentence(void **state)
{
	(void)state;
	assert_int_equal(kvc_fail(KVP_ELEASE, "%u of %u", 1u, 2u), -KVP_ELEASE);
	assert_string_equal(kvp_last_error(), "1 of 2");
	assert_int_equal(kvc_fail(-EAGAIN, "again"), -EAGAIN);
	assert_string_equal(kvp_last_error(), "again");
}

struct small {
	uint32_t size;
	uint32_t a;
};
struct large {
	uint32_t size;
	uint32_t a;
	uint64_t b;
};

static void a_shorter_struct_is_extended_by_zeros(void **state)
{
	const struct small given = {.size = sizeof(given), .a = 7};
	struct large own;

	(void)state;
	memset(&own, 0xff, sizeof(own));
	assert_int_equal(kvc_params_read(&own, sizeof(own), &given, "large"), 0);
	assert_int_equal(own.a, 7);
	assert_int_equal(own.b, 0);
}

static void a_longer_struct_is_taken_only_with_a_zero_tail(void **state)
{
	struct large given = {.size = sizeof(given), .a = 7};
	struct small own;

	(void)state;
	assert_int_equal(kvc_params_read(&own, sizeof(own), &given, "small"), 0);
	assert_int_equal(own.a, 7);
	given.b = 1ull << 63;
	assert_int_equal(kvc_params_read(&own, sizeof(own), &given, "small"), -E2BIG);
	assert_non_null(strstr(kvp_last_error(), "small"));
}

static void a_struct_without_a_size_is_refused(void **state)
{
	struct large given = {.size = 0};
	struct large own;

	(void)state;
	assert_int_equal(kvc_params_read(&own, sizeof(own), &given, "large"), -EINVAL);
	given.size = 3;
	assert_int_equal(kvc_params_read(&own, sizeof(own), &given, "large"), -EINVAL);
	given.size = 0xffffffff;
	assert_int_equal(kvc_params_read(&own, sizeof(own), &given, "large"), -E2BIG);
	given.size = 0;
	assert_int_equal(kvc_params_write(&given, &own, sizeof(own), "large"), -EINVAL);
}

static void an_output_struct_gets_what_it_has_room_for(void **state)
{
	struct {
		struct small out;
		uint64_t behind;
	} given = {.out = {.size = sizeof(struct small)}, .behind = 5};
	struct large own = {.a = 9, .b = 10};

	(void)state;
	assert_int_equal(kvc_params_write(&given.out, &own, sizeof(own), "large"), 0);
	assert_int_equal(given.out.size, sizeof(struct small));
	assert_int_equal(given.out.a, 9);
	assert_int_equal(given.behind, 5);
}

static void unknown_tails_of_public_structs_are_refused(void **state)
{
	struct {
		struct kvp_connect_params params;
		uint64_t tail;
	} longer = {.params = {.size = sizeof(longer), .path = "/nonexistent/socket", .timeout_ms = 1}};
	struct kvp_client *client = NULL;

	(void)state;
	assert_int_equal(kvp_connect(&longer.params, &client), -ENOENT);
	assert_non_null(strstr(kvp_last_error(), "/nonexistent/socket"));
	longer.tail = 1;
	assert_int_equal(kvp_connect(&longer.params, &client), -E2BIG);
	assert_null(client);
}

static void nothing_is_a_valid_argument_of_close(void **state)
{
	(void)state;
	kvp_close(NULL);
	kvp_batch_destroy(NULL);
	assert_int_equal(kvp_seq_close(NULL), 0);
	assert_string_equal(kvp_version(), KVP_VERSION_STRING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_error_has_its_name_and_text),
		cmocka_unit_test(the_last_error_is_the_threads_own_sentence),
		cmocka_unit_test(a_shorter_struct_is_extended_by_zeros),
		cmocka_unit_test(a_longer_struct_is_taken_only_with_a_zero_tail),
		cmocka_unit_test(a_struct_without_a_size_is_refused),
		cmocka_unit_test(an_output_struct_gets_what_it_has_room_for),
		cmocka_unit_test(unknown_tails_of_public_structs_are_refused),
		cmocka_unit_test(nothing_is_a_valid_argument_of_close),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
