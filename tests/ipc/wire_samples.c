/* SPDX-License-Identifier: Apache-2.0 */
#include "wire_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wire_chunk {
	struct wire_chunk *next;
	_Alignas(16) char bytes[];
};

void *wire_alloc(struct wire_arena *arena, size_t bytes)
{
	struct wire_chunk *chunk = calloc(1, sizeof(*chunk) + bytes);

	if (!chunk)
		abort();
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	return chunk->bytes;
}

void wire_free(struct wire_arena *arena)
{
	while (arena->chunks) {
		struct wire_chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		free(chunk);
	}
}

static void broken(const char *what)
{
	fprintf(stderr, "%s\n", what);
	abort();
}

/* ------------------------------------------------------------------ values */

/* Both ends of every width that msgpack has. */
static const uint64_t sample_numbers[10] = {
	1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x10000, 0xffffffff, 0x100000000, UINT64_MAX,
};
static const int64_t sample_signed[11] = {
	-1, -32, -33, -128, -129, -32768, -32769, -2147483648ll, -2147483648ll - 1, INT64_MIN, INT64_MAX,
};

static uint64_t random_number(struct kvt_rng *rng)
{
	return kvt_rng_next(rng) >> kvt_rng_below(rng, 64) & -kvt_rng_below(rng, 2);
}

static uint64_t value_unsigned(struct wire_source *source, uint32_t key)
{
	if (source->rng)
		return random_number(source->rng);
	return sample_numbers[(key + source->index) % 10];
}

static int64_t value_signed(struct wire_source *source, uint32_t key)
{
	if (source->rng) {
		int64_t value = (int64_t)(random_number(source->rng) >> 1);

		return kvt_rng_below(source->rng, 2) ? value : -value - 1;
	}
	return sample_signed[(key + source->index) % 11];
}

/* A random code point, encoded; 0 bytes when it does not fit in `room`. */
static uint32_t random_character(struct kvt_rng *rng, char *out, uint32_t room)
{
	static const uint32_t first[4] = {0x1, 0x80, 0x800, 0x10000};
	static const uint32_t last[4] = {0x7f, 0x7ff, 0xffff, 0x10ffff};
	uint32_t bytes = 1 + (uint32_t)kvt_rng_below(rng, 4);
	uint32_t code =
		first[bytes - 1] + (uint32_t)kvt_rng_below(rng, last[bytes - 1] - first[bytes - 1] + 1);
	static const uint32_t lead[4] = {0, 0xc0, 0xe0, 0xf0};
	uint32_t i;

	if (code >= 0xd800 && code <= 0xdfff)
		code = 0xd7ff;
	if (bytes > room)
		return 0;
	for (i = bytes - 1; i > 0; i--) {
		out[i] = (char)(0x80 | (code & 0x3f));
		code >>= 6;
	}
	out[0] = (char)(lead[bytes - 1] | code);
	return bytes;
}

static struct kvw_text value_text(struct wire_source *source, const char *name, uint32_t max)
{
	char *text = wire_alloc(source->arena, max);
	uint32_t length = 0;
	uint32_t wanted;

	if (!source->rng)
		return (struct kvw_text){text, (uint32_t)snprintf(text, max, "%s \xe2\x82\xac", name)};
	wanted = (uint32_t)kvt_rng_below(source->rng, max + 1) * (uint32_t)kvt_rng_below(source->rng, 2);
	while (length < wanted) {
		uint32_t step = random_character(source->rng, text + length, wanted - length);

		if (step == 0)
			break;
		length += step;
	}
	return (struct kvw_text){text, length};
}

static struct kvw_bytes value_bytes(struct wire_source *source, uint32_t key, uint32_t max)
{
	uint8_t *bytes = wire_alloc(source->arena, max);
	uint32_t length = 5 + key < max ? 5 + key : max;
	uint32_t i;

	if (source->rng)
		length = (uint32_t)kvt_rng_below(source->rng, max + 1);
	for (i = 0; i < length; i++)
		bytes[i] = source->rng ? (uint8_t)kvt_rng_next(source->rng) : (uint8_t)(7 * key + i);
	return (struct kvw_bytes){bytes, length};
}

/*
 * Samples have three items, the third one empty. Random lists are short, mostly: many long ones do not fit a
 * message.
 */
static uint32_t value_count(struct wire_source *source, uint32_t max)
{
	if (!source->rng)
		return 3;
	return (uint32_t)kvt_rng_below(source->rng, kvt_rng_below(source->rng, 8) ? 8 : max + 1);
}

/* An item may wait for its first message. */
#define LIST_OF __attribute__((unused))

#define FILL_U(key, name) m->name = value_unsigned(source, key);
#define FILL_I(key, name) m->name = value_signed(source, key);
#define FILL_S(key, name, max) m->name = value_text(source, #name, max);
#define FILL_B(key, name, max) m->name = value_bytes(source, key, max);
#define FILL_L(key, name, item, max) m->name = fill_list_##item(source, max);

#define KVW_ITEM(NAME, FIELDS)                                                                               \
	LIST_OF static struct kvw_list fill_list_##NAME(struct wire_source *source, uint32_t max) {          \
		uint32_t count = value_count(source, max);                                                   \
		uint32_t outer = source->index;                                                              \
		struct kvw_item_##NAME *items = wire_alloc(source->arena, count * sizeof(*items));           \
		uint32_t i;                                                                                  \
                                                                                                             \
		for (i = 0; i < count; i++) {                                                                \
			struct kvw_item_##NAME *m = &items[i];                                               \
                                                                                                             \
			source->index = i;                                                                   \
			if (source->rng || i < 2) {                                                          \
				FIELDS(FILL_U, FILL_I, FILL_S, FILL_B, FILL_L)                               \
			}                                                                                    \
		}                                                                                            \
		source->index = outer;                                                                       \
		return kvw_list_of(items, count);                                                            \
	}
#define KVW_MESSAGE(NAME, type, FIELDS)                                                                      \
	static void fill_##NAME(void *message, struct wire_source *source)                                   \
	{                                                                                                    \
		struct kvw_msg_##NAME *m = message;                                                          \
                                                                                                             \
		m->unused = 0;                                                                               \
		(void)source;                                                                                \
		FIELDS(FILL_U, FILL_I, FILL_S, FILL_B, FILL_L)                                               \
	}
#define KVW_RESERVED(NAME, type)
#include "ipc/wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE

/* ------------------------------------------------------------------ decoded lists to arrays */

#define OWN_NONE_2(key, name)
#define OWN_NONE_3(key, name, max)
#define OWN_L(key, name, item, max) m->name = own_list_##item(m->name, arena);

#define KVW_ITEM(NAME, FIELDS)                                                                               \
	LIST_OF static struct kvw_list own_list_##NAME(struct kvw_list list, struct wire_arena *arena) {     \
		uint32_t count = list.count;                                                                 \
		struct kvw_item_##NAME *items = wire_alloc(arena, (count + 1) * sizeof(*items));             \
		uint32_t i;                                                                                  \
                                                                                                             \
		for (i = 0; i < count; i++)                                                                  \
			if (kvw_list_next(&list, KVW_ITEM_##NAME, &items[i]) != 1)                           \
				broken("a decoded list of " #NAME " ended too early");                       \
		if (kvw_list_next(&list, KVW_ITEM_##NAME, &items[count]) != 0 || list.length != 0)           \
			broken("a decoded list of " #NAME " did not end");                                   \
		return kvw_list_of(items, count);                                                            \
	}
#define KVW_MESSAGE(NAME, type, FIELDS)                                                                      \
	static void own_##NAME(void *message, struct wire_arena *arena)                                      \
	{                                                                                                    \
		struct kvw_msg_##NAME *m = message;                                                          \
                                                                                                             \
		(void)m;                                                                                     \
		(void)arena;                                                                                 \
		FIELDS(OWN_NONE_2, OWN_NONE_2, OWN_NONE_3, OWN_NONE_3, OWN_L)                                \
	}
#include "ipc/wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE

/* ------------------------------------------------------------------ comparison */

static bool same_bytes(const void *a, uint32_t a_length, const void *b, uint32_t b_length)
{
	return a_length == b_length && (a_length == 0 || !memcmp(a, b, a_length));
}

#define EQUAL_NUMBER(key, name) same = same && a->name == b->name;
#define EQUAL_BYTES(key, name, max)                                                                          \
	same = same && same_bytes(a->name.at, a->name.length, b->name.at, b->name.length);
#define EQUAL_L(key, name, item, max) same = same && equal_list_##item(&a->name, &b->name);

#define KVW_ITEM(NAME, FIELDS)                                                                               \
	LIST_OF static bool equal_list_##NAME(const struct kvw_list *x, const struct kvw_list *y)            \
	{                                                                                                    \
		bool same = x->count == y->count;                                                            \
		uint32_t i;                                                                                  \
                                                                                                             \
		for (i = 0; same && i < x->count; i++) {                                                     \
			const struct kvw_item_##NAME *a = (const struct kvw_item_##NAME *)x->items + i;      \
			const struct kvw_item_##NAME *b = (const struct kvw_item_##NAME *)y->items + i;      \
                                                                                                             \
			FIELDS(EQUAL_NUMBER, EQUAL_NUMBER, EQUAL_BYTES, EQUAL_BYTES, EQUAL_L)                \
		}                                                                                            \
		return same;                                                                                 \
	}
#define KVW_MESSAGE(NAME, type, FIELDS)                                                                      \
	static bool equal_##NAME(const void *x, const void *y)                                               \
	{                                                                                                    \
		const struct kvw_msg_##NAME *a = x;                                                          \
		const struct kvw_msg_##NAME *b = y;                                                          \
		bool same = true;                                                                            \
                                                                                                             \
		(void)a;                                                                                     \
		(void)b;                                                                                     \
		FIELDS(EQUAL_NUMBER, EQUAL_NUMBER, EQUAL_BYTES, EQUAL_BYTES, EQUAL_L)                        \
		return same;                                                                                 \
	}
#include "ipc/wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE

/* ------------------------------------------------------------------ the table */

const struct wire_type wire_types[] = {
#define KVW_ITEM(NAME, FIELDS)
#define KVW_MESSAGE(NAME, number, FIELDS)                                                                    \
	{number, #NAME, sizeof(struct kvw_msg_##NAME), fill_##NAME, own_##NAME, equal_##NAME},
#include "ipc/wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED
};
const uint32_t wire_type_count = sizeof(wire_types) / sizeof(wire_types[0]);

const struct wire_type *wire_type_of(uint32_t type)
{
	uint32_t i;

	for (i = 0; i < wire_type_count; i++)
		if (wire_types[i].type == type)
			return &wire_types[i];
	return NULL;
}
