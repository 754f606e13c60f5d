/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text in messages: UTF-8 without NUL, by length. It ends in logs, tables and terminals, hence the check on
 * both sides.
 */
#include "wire_tables.h"

#include <string.h>

/* Bytes of the character that `lead` begins; 0: no character begins so. */
static uint32_t character_bytes(uint8_t lead)
{
	if (lead < 0x80)
		return 1;
	if (lead >= 0xc2 && lead <= 0xdf)
		return 2;
	if (lead >= 0xe0 && lead <= 0xef)
		return 3;
	if (lead >= 0xf0 && lead <= 0xf4)
		return 4;
	return 0;
}

/* The second byte's range shuts out overlong forms, surrogates and what is above U+10FFFF. */
static bool second_byte_fits(uint8_t lead, uint8_t second)
{
	switch (lead) {
	case 0xe0:
		return second >= 0xa0 && second <= 0xbf;
	case 0xed:
		return second >= 0x80 && second <= 0x9f;
	case 0xf0:
		return second >= 0x90 && second <= 0xbf;
	case 0xf4:
		return second >= 0x80 && second <= 0x8f;
	default:
		return second >= 0x80 && second <= 0xbf;
	}
}

/* Length of the valid character at at[0], 0 when there is none. */
static uint32_t valid_character(const uint8_t *at, uint32_t left)
{
	uint32_t bytes = character_bytes(at[0]);
	uint32_t i;

	if (bytes == 0 || bytes > left || at[0] == 0)
		return 0;
	if (bytes > 1 && !second_byte_fits(at[0], at[1]))
		return 0;
	for (i = 2; i < bytes; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	return bytes;
}

uint32_t kvw_text_valid(const char *at, uint32_t length)
{
	const uint8_t *bytes = (const uint8_t *)at;
	uint32_t done = 0;

	while (done < length) {
		uint32_t step = valid_character(bytes + done, length - done);

		if (step == 0)
			break;
		done += step;
	}
	return done;
}

struct kvw_text kvw_text_of(const char *string)
{
	size_t length = string ? strnlen(string, KVW_MAX_MESSAGE_BYTES) : 0;

	return (struct kvw_text){.at = string, .length = kvw_text_valid(string, (uint32_t)length)};
}

char *kvw_text_copy(struct kvw_text text, char *out, size_t capacity)
{
	size_t length = text.length;

	if (capacity == 0)
		return out;
	if (length > capacity - 1)
		length = capacity - 1;
	if (length > 0)
		memcpy(out, text.at, length);
	out[length] = '\0';
	return out;
}
