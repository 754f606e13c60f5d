/* SPDX-License-Identifier: Apache-2.0 */
/* Values as people read them. */
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

char *ctl_number(uint64_t value, char *out, size_t capacity)
{
	char digits[24];
	int length = snprintf(digits, sizeof(digits), "%" PRIu64, value);
	size_t at = 0;

	for (int i = 0; i < length && at + 2 < capacity; i++) {
		if (i && (length - i) % 3 == 0)
			out[at++] = ',';
		out[at++] = digits[i];
	}
	out[at] = '\0';
	return out;
}

char *ctl_bytes(uint64_t bytes, char *out, size_t capacity)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
	double value = (double)bytes;
	uint32_t unit = 0;

	while (value >= 999.5 && unit < 5) {
		value /= 1000;
		unit++;
	}
	snprintf(out, capacity, unit && value < 99.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return out;
}

char *ctl_duration(uint64_t ms, char *out, size_t capacity)
{
	uint64_t seconds = ms / 1000;

	if (ms < 1000)
		snprintf(out, capacity, "%" PRIu64 " ms", ms);
	else if (seconds < 60)
		snprintf(out, capacity, "%.1f s", (double)ms / 1000);
	else if (seconds < 3600)
		snprintf(out, capacity, "%" PRIu64 " min %02" PRIu64 " s", seconds / 60, seconds % 60);
	else if (seconds < 86400)
		snprintf(out, capacity, "%" PRIu64 " h %02" PRIu64 " min", seconds / 3600, seconds / 60 % 60);
	else
		snprintf(out, capacity, "%" PRIu64 " d %02" PRIu64 " h", seconds / 86400,
			 seconds / 3600 % 24);
	return out;
}

char *ctl_percent(uint64_t part, uint64_t whole, char *out, size_t capacity)
{
	if (whole)
		snprintf(out, capacity, "%.1f %%", 100.0 * (double)part / (double)whole);
	else
		snprintf(out, capacity, "-");
	return out;
}

char *ctl_hex(const uint8_t *at, uint32_t bytes, char *out, size_t capacity)
{
	static const char digits[] = "0123456789abcdef";
	size_t length = 0;

	for (uint32_t i = 0; i < bytes && length + 2 < capacity; i++) {
		out[length++] = digits[at[i] >> 4];
		out[length++] = digits[at[i] & 15];
	}
	out[length] = '\0';
	return out;
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int ctl_unhex(const char *text, uint8_t *out, uint32_t capacity)
{
	size_t length = strlen(text);

	if (!length || length % 2 || length / 2 > capacity)
		return -EINVAL;
	for (size_t i = 0; i < length / 2; i++) {
		int high = nibble(text[2 * i]);
		int low = nibble(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		out[i] = (uint8_t)(high << 4 | low);
	}
	return (int)(length / 2);
}

void ctl_make_safe(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

char *ctl_safe(struct kvw_text text, char *out, size_t capacity)
{
	kvw_text_copy(text, out, capacity);
	ctl_make_safe(out);
	return out;
}
