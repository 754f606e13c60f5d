/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an ATTACH asks for, validated: computed from the message and the configuration alone, the same each
 * time.
 */
#ifndef KVPOOL_DAEMON_ATTACH_PLAN_H
#define KVPOOL_DAEMON_ATTACH_PLAN_H

#include "attachment.h"
#include "namespace.h"
#include "session.h"

struct kvd_attach_plan {
	struct kvd_served_pool *pool;
	struct kvw_tables_params tables;
	struct kvw_tables_layout layout;
	uint32_t answers;
	struct kvd_lease_marks lease;
	struct kvd_identity identity;
	uint32_t max_holds;
};

/* 0, or -1 when the request was refused. */
int kvd_attach_plan(struct kvd_session *session, const struct kvw_envelope *request,
		    const struct kvw_msg_ATTACH *attach, struct kvd_attach_plan *out);

/* Marks of a lease for this many rows, drafts and steps in flight, fit for the pool. */
struct kvd_lease_marks kvd_lease_marks_for(uint64_t max_seqs, uint64_t drafts, uint64_t slots,
					   uint32_t block_tokens, uint32_t data_blocks);

#endif
