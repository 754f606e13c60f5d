/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz input as a script: numbers taken from its front. At its end every number is 0.
 */
#ifndef KVPOOL_TEST_SCRIPT_H
#define KVPOOL_TEST_SCRIPT_H

#include <stdint.h>
#include <string.h>

struct script {
	const uint8_t *at;
	size_t left;
};

static inline void script_bytes(struct script *script, void *out, size_t length)
{
	size_t part = length < script->left ? length : script->left;

	memset(out, 0, length);
	memcpy(out, script->at, part);
	script->at += part;
	script->left -= part;
}

static inline uint8_t script_u8(struct script *script)
{
	uint8_t value;

	script_bytes(script, &value, sizeof(value));
	return value;
}

static inline uint32_t script_u16(struct script *script)
{
	uint16_t value;

	script_bytes(script, &value, sizeof(value));
	return value;
}

static inline uint64_t script_u64(struct script *script)
{
	uint64_t value;

	script_bytes(script, &value, sizeof(value));
	return value;
}

/* Small values mostly, every value sometimes: the first byte, or the eight behind it when that is 255. */
static inline uint64_t script_number(struct script *script)
{
	uint8_t small = script_u8(script);

	return small == 255 ? script_u64(script) : small;
}

#endif
