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

#include "ipc/wire.h"

#include "config.h"
#include "device.h"
#include "device_cuda.h"
#include "importers.h"
#include "lock_queue.h"
#include "pool.h"
#include "segment.h"
#include "tenant.h"
#include "worker.h"

/* While an earlier daemon's engines have the device's memory (populate.c). */
struct kvd_pool_room {
	struct kvd_importers_left left; /* at the last try; count 0: nobody is awaited */
	uint64_t next_try_us;           /* 0: none is to come, or the worker is at it */
	uint64_t next_line_us;          /* in the log */
	/* The worker's, while it is at it. */
	struct kvd_importers_left found;
	bool again; /* the try is to be made again */
	bool last;  /* nobody was left: it is the last one */
};

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
	struct kvd_importers *importers;
	uint32_t engines; /* attached now */
	/*
	 * One lock byte an engine. Taken from before its descriptors exist until its engine is destroyed,
	 * which is after the proof: so no byte is given to two whose mappings could both be alive.
	 */
	bool lock_taken[KVW_MAX_ENGINES];
	bool ready;   /* populated: may be attached to */
	int failed;   /* why it never will be */
	bool lost;    /* its device answers no more */
	bool looking; /* the worker asks the device whether it does */
	uint64_t next_look_us;
	_Atomic uint64_t populated_bytes;
	uint64_t reported_bytes; /* in the log */
	uint64_t report_us;
	uint64_t progress_us; /* when the worker last moved on */
	struct kvd_pool_room room;
};

/* Creates memory, segments and books; nothing is populated. Logs what fails. */
int kvd_served_pool_open(const struct kvd_pool_config *config, uint32_t number, uint64_t incarnation,
			 struct kvd_served_pool *pool);
/* The worker makes every page present; `ready` or `failed` tells. */
int kvd_served_pool_populate(struct kvd_served_pool *pool, struct kvd_worker *worker);
/* Has the worker try again when a device had no room and it is time for that. For each poll. */
void kvd_served_pool_try_again(struct kvd_served_pool *pool, struct kvd_worker *worker, uint64_t now_us);
/* Engines must be destroyed. Marks an orderly end. A zeroed pool is a no-op. */
void kvd_served_pool_close(struct kvd_served_pool *pool);

/* One line of progress every few seconds while it is populated. */
void kvd_served_pool_report(struct kvd_served_pool *pool, uint64_t now_us);

/* How clients map it: true for a CUDA pool that is ready. */
bool kvd_served_pool_sharing(const struct kvd_served_pool *pool, struct kvd_cuda_sharing *out);
/* The same as the wire says it; without the handle. False: the pool is the host's, or not ready. */
bool kvd_served_pool_memory(const struct kvd_served_pool *pool, struct kvw_item_MEMORY *out,
			    struct kvd_cuda_sharing *out_sharing);
/*
 * Why it can't be used now or ever: its device could not be had, or is lost. "" when it can be, or will be
 * when it is populated.
 */
const char *kvd_served_pool_fault(const struct kvd_served_pool *pool);
/* Has the worker ask a CUDA pool's device, every second, whether it is lost. */
void kvd_served_pool_look(struct kvd_served_pool *pool, struct kvd_worker *worker, uint64_t now_us);

/* A free lock byte, or -KVP_ELIMIT. */
int kvd_lock_byte_take(struct kvd_served_pool *pool, uint64_t *out_byte);
void kvd_lock_byte_give(struct kvd_served_pool *pool, uint64_t byte);

/*
 * The session table of the state segment: who has which lock byte. `record` NULL: the entry becomes unused.
 */
void kvd_session_record_write(struct kvd_served_pool *pool, uint64_t lock_byte,
			      const struct kvw_session_record *record);

#endif
