/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text, and tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tools/counters.h"
#include "tools/table.h"
#include "tools/text.h"

static void numbers_have_separators(void **state)
{
	char text[CTL_TEXT_BYTES];

	(void)state;
	assert_string_equal(ctl_number(0, text, sizeof(text)), "0");
	assert_string_equal(ctl_number(999, text, sizeof(text)), "999");
	assert_string_equal(ctl_number(1000, text, sizeof(text)), "1,000");
	assert_string_equal(ctl_number(61046, text, sizeof(text)), "61,046");
	assert_string_equal(ctl_number(UINT64_MAX, text, sizeof(text)), "18,446,744,073,709,551,615");
}

static void sizes_and_times_have_units(void **state)
{
	char text[CTL_TEXT_BYTES];

	(void)state;
	assert_string_equal(ctl_bytes(0, text, sizeof(text)), "0 B");
	assert_string_equal(ctl_bytes(999, text, sizeof(text)), "999 B");
	assert_string_equal(ctl_bytes(4423680000, text, sizeof(text)), "4.4 GB");
	assert_string_equal(ctl_bytes(999999, text, sizeof(text)), "1.0 MB");
	assert_string_equal(ctl_bytes(123456789, text, sizeof(text)), "123 MB");
	assert_string_equal(ctl_duration(7, text, sizeof(text)), "7 ms");
	assert_string_equal(ctl_duration(12340, text, sizeof(text)), "12.3 s");
	assert_string_equal(ctl_duration(245000, text, sizeof(text)), "4 min 05 s");
	assert_string_equal(ctl_duration(11220000, text, sizeof(text)), "3 h 07 min");
	assert_string_equal(ctl_duration(183600000, text, sizeof(text)), "2 d 03 h");
	assert_string_equal(ctl_percent(366, 1000, text, sizeof(text)), "36.6 %");
	assert_string_equal(ctl_percent(1, 0, text, sizeof(text)), "-");
}

static void small_buffers_are_cut_not_overrun(void **state)
{
	char text[8];

	(void)state;
	memset(text, 'x', sizeof(text));
	ctl_number(1234567890, text, 5);
	assert_true(strlen(text) < 5);
	assert_int_equal(text[5], 'x');
	ctl_hex((const uint8_t *)"\x01\x02\x03\x04", 4, text, 5);
	assert_string_equal(text, "0102");
}

static void hex_reads_back_and_other_text_is_refused(void **state)
{
	uint8_t bytes[4];
	char text[16];

	(void)state;
	assert_int_equal(ctl_unhex("00fFa9", bytes, sizeof(bytes)), 3);
	assert_string_equal(ctl_hex(bytes, 3, text, sizeof(text)), "00ffa9");
	assert_true(ctl_unhex("", bytes, sizeof(bytes)) < 0);
	assert_true(ctl_unhex("0", bytes, sizeof(bytes)) < 0);
	assert_true(ctl_unhex("0g", bytes, sizeof(bytes)) < 0);
	assert_true(ctl_unhex("0011223344", bytes, sizeof(bytes)) < 0);
}

static void a_peers_text_cannot_move_the_cursor(void **state)
{
	char text[32];

	(void)state;
	assert_string_equal(ctl_safe(kvw_text_of("a\x1b[2J\nb\x7f"), text, sizeof(text)), "a?[2J?b?");
	assert_string_equal(ctl_safe(kvw_text_of("\xc3\xa4"), text, sizeof(text)), "\xc3\xa4");
}

static void columns_are_aligned(void **state)
{
	struct ctl_table *table = ctl_table_create("NAME|>BLOCKS|STATE");
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	(void)state;
	ctl_table_text(table, "a");
	ctl_table_number(table, 60000);
	ctl_table_text(table, "ready");
	ctl_table_text(table, "caf\xc3\xa9 au lait");
	ctl_table_number(table, 7);
	ctl_table_format(table, "%d %%", 45);
	assert_int_equal(ctl_table_print(table, out), 0);
	fclose(out);
	assert_string_equal(text, "NAME          BLOCKS  STATE\n"
				  "a             60,000  ready\n"
				  "caf\xc3\xa9 au lait       7  45 %\n");
	free(text);
	ctl_table_destroy(table);
}

static void a_table_without_titles_has_no_head(void **state)
{
	struct ctl_table *table = ctl_table_create("|>");
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	(void)state;
	ctl_table_text(table, "size");
	ctl_table_bytes(table, 5000);
	assert_int_equal(ctl_table_print(table, out), 0);
	fclose(out);
	assert_string_equal(text, "size  5.0 kB\n");
	free(text);
	ctl_table_destroy(table);
	ctl_table_destroy(NULL);
	assert_true(ctl_table_print(NULL, stdout) < 0);
}

static void counters_of_another_version_are_read_as_far_as_they_go(void **state)
{
	uint64_t sent[KVW_COUNTERS + 3];
	uint64_t read[KVW_COUNTERS];

	(void)state;
	for (uint32_t i = 0; i < KVW_COUNTERS + 3; i++)
		sent[i] = i + 1;
	ctl_counters_read(kvw_bytes_of(sent, sizeof(sent)), read);
	assert_int_equal(read[KVW_COUNTERS - 1], KVW_COUNTERS);
	ctl_counters_read(kvw_bytes_of(sent, 19), read);
	assert_int_equal(read[1], 2);
	assert_int_equal(read[2], 0);
	assert_string_equal(ctl_counter_name(KVW_COUNTER_hit_blocks), "hit_blocks");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_have_separators),
		cmocka_unit_test(sizes_and_times_have_units),
		cmocka_unit_test(small_buffers_are_cut_not_overrun),
		cmocka_unit_test(hex_reads_back_and_other_text_is_refused),
		cmocka_unit_test(a_peers_text_cannot_move_the_cursor),
		cmocka_unit_test(columns_are_aligned),
		cmocka_unit_test(a_table_without_titles_has_no_head),
		cmocka_unit_test(counters_of_another_version_are_read_as_far_as_they_go),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
