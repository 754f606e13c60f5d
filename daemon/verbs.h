/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request ring of a session: records in, engine operations, completions out. ipc/shm.h is the contract
 * of every verb.
 *
 * A record is copied out once and validated; the arrays that it names are read once, from the tables segment
 * into scratch memory of the daemon, before the engine looks at them. A verb runs in stretches; the
 * session's next record waits for its end, other sessions go on in between.
 */
#ifndef KVPOOL_DAEMON_VERBS_H
#define KVPOOL_DAEMON_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/shm.h"

#include "engine.h"

struct kvd_session;
struct kvd_verb_ops;

/* Records of one ring and turn. */
#define KVD_TURN_RECORDS 64u
/* Blocks that a verb handles between two looks at the clock. */
#define KVD_STRETCH_BLOCKS 128u

/* What one verb of one session works in: mapped, so that only what is used takes memory. */
struct kvd_scratch {
	void *memory;
	size_t bytes;
	uint8_t *hashes;              /* [row_blocks][hash_bytes] */
	struct kvw_block_ref *blocks; /* [row_blocks] */
	struct kvw_answer *answers;   /* [row_blocks, and KVW_LEASE_ENTRIES at least] */
};
/* -ENOMEM */
int kvd_scratch_map(struct kvd_scratch *scratch, uint32_t row_blocks, uint32_t hash_bytes);
void kvd_scratch_unmap(struct kvd_scratch *scratch);

/* The record being carried out. */
struct kvd_verb {
	const struct kvd_verb_ops *ops; /* NULL: none */
	struct kvw_request request;
	struct kvw_completion completion;
	uint32_t phase;
	uint32_t done; /* blocks of the phase */
	union {
		struct kvd_open open;
		struct kvd_grant grant;
		struct kvd_publish publish;
	};
};

/* Whether kvd_verbs_serve() has something to do now. A lying index counts: serving finds it. */
bool kvd_verbs_ready(struct kvd_session *session);
/* At most a stretch; may end the session. True when more is ready. */
bool kvd_verbs_serve(struct kvd_session *session, uint64_t until_us);
/* The running verb is given up, nothing is answered. */
void kvd_verbs_abort(struct kvd_session *session);

#endif
