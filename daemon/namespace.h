/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may share: a namespace stands for one (uid, numerics, digest of the identity). Engines of one namespace
 * find each other's blocks; nobody else does.
 *
 * Ids start at 1 and are never reused, so that blocks of a forgotten namespace are only unfindable. The
 * table is bounded: an unused namespace is forgotten when its uid, or everybody, needs the room; the longest
 * unused goes first.
 */
#ifndef KVPOOL_DAEMON_NAMESPACE_H
#define KVPOOL_DAEMON_NAMESPACE_H

#include <stdint.h>

#include "ipc/hash.h"

#define KVD_MAX_NAMESPACES 1024u
/* Of one uid: so that nobody makes others' namespaces forgotten alone. */
#define KVD_MAX_UID_NAMESPACES 64u

struct kvd_identity {
	uint32_t uid;
	uint32_t numerics;
	uint8_t digest[KVW_SHA256_BYTES];
};

struct kvd_namespace {
	struct kvd_identity identity;
	uint32_t id;
	uint32_t users;
	uint64_t last_use;
};

struct kvd_namespaces {
	struct kvd_namespace entries[KVD_MAX_NAMESPACES];
	uint32_t count;
	uint32_t last_id;
	uint64_t clock;
};

/*
 * Finds or makes the namespace and counts a user of it. -KVP_ELIMIT when all that could be forgotten are in
 * use.
 */
int kvd_namespace_acquire(struct kvd_namespaces *namespaces, const struct kvd_identity *identity,
			  uint32_t *out_id);
void kvd_namespace_release(struct kvd_namespaces *namespaces, uint32_t id);

#endif
