/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values for every message and item, and comparison of messages. Made from wire.def by field name, so that it
 * shares neither the schemas nor a function with what it checks.
 */
#ifndef KVPOOL_TEST_WIRE_SAMPLES_H
#define KVPOOL_TEST_WIRE_SAMPLES_H

#include "support.h"

#include "ipc/wire.h"

/* Memory that lives as long as one message; freed as a whole. */
struct wire_arena {
	struct wire_chunk *chunks;
};
void *wire_alloc(struct wire_arena *arena, size_t bytes);
void wire_free(struct wire_arena *arena);

/* Where values come from: `rng`, or without it the rule that make_wire_golden.py follows too. */
struct wire_source {
	struct wire_arena *arena;
	struct kvt_rng *rng;
	uint32_t index; /* type of the message, or the item's place in its list */
};

struct wire_type {
	uint32_t type;
	const char *name;
	size_t bytes;
	void (*fill)(void *message, struct wire_source *source);
	/*
	 * Turns decoded lists into arrays, as kvw_encode() wants them. Aborts when kvw_list_next() breaks its
	 * word.
	 */
	void (*own)(void *message, struct wire_arena *arena);
	bool (*equal)(const void *a, const void *b); /* both with arrays */
};
extern const struct wire_type wire_types[];
extern const uint32_t wire_type_count;
const struct wire_type *wire_type_of(uint32_t type);

/* Sequence number that the golden messages carry. */
#define WIRE_GOLDEN_SEQUENCE 0x1122334455667788u

#endif
