/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block records in the state segment: how one is written, so that whoever finds the segment after this
 * process was killed at any instruction can tell a whole record from a torn one.
 */
#ifndef KVPOOL_DAEMON_RECORD_H
#define KVPOOL_DAEMON_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "ipc/shm.h"

/* What `commit` must be: XXH3-64 of (u64 id, u64 incarnation, bytes 0..119); never 0. */
uint64_t kvd_record_seal(const struct kvw_block_record *record, uint32_t id, uint64_t incarnation);
/* commit = 0, body, commit. `body` is the daemon's copy; its commit is ignored. */
void kvd_record_write(struct kvw_block_record *slot, const struct kvw_block_record *body, uint32_t id,
		      uint64_t incarnation);
bool kvd_record_intact(const struct kvw_block_record *slot, uint32_t id, uint64_t incarnation);

#endif
