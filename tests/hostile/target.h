/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon that is attacked: with two pools, a quota, few descriptors, a log as in production, and a
 * socket that everybody reaches.
 */
#ifndef KVPOOL_TEST_TARGET_H
#define KVPOOL_TEST_TARGET_H

#include "harness.h"

/*
 * Sessions and descriptors that it has: the first are used up by silent connections, the second by attached
 * ones.
 */
#define KVT_TARGET_SESSIONS 150
#define KVT_TARGET_DESCRIPTORS 400

struct kvt_daemon *kvt_target_start(void);

/* What the log says of sessions: each that was attached ends once, with a reason. */
struct kvt_log_audit {
	uint64_t attached;
	uint64_t ended;   /* of those */
	uint64_t revoked; /* of all */
	uint64_t without_reason;
	uint64_t twice;
	uint64_t left_out; /* lines that the daemon did not write, by its own word */
	uint64_t bytes;
};
struct kvt_log_audit kvt_target_audit(const struct kvt_daemon *daemon);

#endif
