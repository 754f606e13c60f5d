/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool as it is served: its memory on a device, its state and directory segments, its books, its tenants,
 * and which lock bytes are taken.
 */
#ifndef KVPOOL_DAEMON_SERVED_POOL_H
#define KVPOOL_DAEMON_SERVED_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "device.h"
#include "lock_queue.h"
#include "pool.h"
#include "segment.h"
#include "tenant.h"
#include "worker.h"

struct kvd_served_pool {
	const struct kvd_pool_config *config;
	uint32_t number;
	const struct kvd_device_ops *device;
	struct kvd_memory *memory; /* the one shard */
	struct kvd_segment state;
	struct kvd_segment directory;
	struct kvd_pool *pool;
	struct kvd_tenants tenants;
	struct kvd_lock_queue locks; /* and when proofs may be asked for */
	uint32_t engines;            /* attached now */
	/*
	 * One lock byte an engine. Taken from before its descriptors exist until its engine is destroyed,
	 * which is after the proof: so no byte is given to two whose mappings could both be alive.
	 */
	bool lock_taken[KVW_MAX_ENGINES];
	bool ready; /* populated: may be attached to */
	int failed; /* why it never will be */
	_Atomic uint64_t populated_bytes;
	uint64_t reported_bytes; /* in the log */
	uint64_t report_us;
	uint64_t progress_us; /* when the worker last moved on */
};

/* Creates memory, segments and books; nothing is populated. Logs what fails. */
int kvd_served_pool_open(const struct kvd_pool_config *config, uint32_t number, uint64_t incarnation,
			 struct kvd_served_pool *pool);
/* The worker makes every page present; `ready` or `failed` tells. */
int kvd_served_pool_populate(struct kvd_served_pool *pool, struct kvd_worker *worker);
/* Engines must be destroyed. Marks an orderly end. A zeroed pool is a no-op. */
void kvd_served_pool_close(struct kvd_served_pool *pool);

/* One line of progress every few seconds while it is populated. */
void kvd_served_pool_report(struct kvd_served_pool *pool, uint64_t now_us);

/* A free lock byte, or -KVP_ELIMIT. */
int kvd_lock_byte_take(struct kvd_served_pool *pool, uint64_t *out_byte);
void kvd_lock_byte_give(struct kvd_served_pool *pool, uint64_t byte);

/*
 * The session table of the state segment: who has which lock byte. `record` NULL: the entry becomes unused.
 */
void kvd_session_record_write(struct kvd_served_pool *pool, uint64_t lock_byte,
			      const struct kvw_session_record *record);

#endif
