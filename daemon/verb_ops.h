/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each verb of the ring is: the loop in verbs.c walks this table and knows no verb by name.
 */
#ifndef KVPOOL_DAEMON_VERB_OPS_H
#define KVPOOL_DAEMON_VERB_OPS_H

#include "attachment.h"

#define KVD_MAIN_PLANE_SET 1u

/* What run() returns besides a negative error of the verb. */
#define KVD_VERB_DONE 1
#define KVD_VERB_MORE 0
/* The tables segment failed: completion.status says how; the session must end. */
#define KVD_VERB_TABLES 2

struct kvd_verb_ops {
	const char *name;
	uint32_t flags;        /* that a record may have */
	bool always_completes; /* else on error only */
	/* Validates the record. 0, or the error that it is completed with. */
	int (*begin)(struct kvd_attachment *attachment, struct kvd_verb *verb);
	/* About KVD_STRETCH_BLOCKS further. */
	int (*run)(struct kvd_attachment *attachment, struct kvd_verb *verb);
	/* The session ended in the middle. May be NULL. */
	void (*abort)(struct kvd_attachment *attachment, struct kvd_verb *verb);
};

/* By enum kvw_request_type; an entry without run() is no verb. */
extern const struct kvd_verb_ops kvd_verb_table[];
extern const uint32_t kvd_verb_count;

/* Blocks that the verb wanted, for the error that says that there are none. */
uint64_t kvd_verb_wanted(const struct kvd_verb *verb);

#endif
