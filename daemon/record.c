/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit protocol of a block record. Its reader is a later process that sees this one's memory
 * after its death, never another thread: a killed process stops between two instructions, and what it
 * had stored by then is all that is seen. So the order that counts is program order, and a compiler
 * barrier is all it takes to keep it.
 */
#include "record.h"

#include <stdatomic.h>
#include <string.h>

#include <xxhash.h>

#define BODY_BYTES offsetof(struct kvw_block_record, commit)

struct sealed {
	uint64_t id;
	uint64_t incarnation;
	uint8_t body[BODY_BYTES];
};
static_assert(sizeof(struct sealed) == 16 + BODY_BYTES, "no padding is hashed");

uint64_t kvd_record_seal(const struct kvw_block_record *record, uint32_t id, uint64_t incarnation)
{
	struct sealed sealed = {.id = id, .incarnation = incarnation};
	uint64_t seal;

	memcpy(sealed.body, record, BODY_BYTES);
	seal = XXH3_64bits(&sealed, sizeof(sealed));
	/* 0 means "being written". */
	return seal ? seal : 1;
}

void kvd_record_write(struct kvw_block_record *slot, const struct kvw_block_record *body, uint32_t id,
		      uint64_t incarnation)
{
	uint64_t seal = kvd_record_seal(body, id, incarnation);

	__atomic_store_n(&slot->commit, 0, __ATOMIC_RELAXED);
	atomic_signal_fence(memory_order_seq_cst);
	memcpy(slot, body, BODY_BYTES);
	atomic_signal_fence(memory_order_seq_cst);
	__atomic_store_n(&slot->commit, seal, __ATOMIC_RELAXED);
}

bool kvd_record_intact(const struct kvw_block_record *slot, uint32_t id, uint64_t incarnation)
{
	return slot->commit == kvd_record_seal(slot, id, incarnation);
}
