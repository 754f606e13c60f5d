/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an attach asks for, with every default filled in and every limit checked before the daemon is asked.
 */
#ifndef KVPOOL_LIBCLIENT_PLAN_H
#define KVPOOL_LIBCLIENT_PLAN_H

#include <stdint.h>

#include <kvpool/kvpool.h>

#include "ipc/shm.h"
#include "ipc/wire.h"

struct kvc_pool;

struct kvc_plan {
	struct kvp_attach_params params; /* defaults filled in */
	struct kvw_tables_params tables;
	struct kvw_tables_layout layout;
	uint32_t answers;                                /* a power of two */
	struct kvw_item_PAIR identity[KVW_MAX_IDENTITY]; /* sorted by key */
};

/* Checks params that do not depend on a pool and sorts the identity; fills in their defaults. */
int kvc_plan_params(const struct kvp_attach_params *given, struct kvc_plan *plan);
/* The rest, for this pool. */
int kvc_plan_pool(const struct kvc_pool *pool, struct kvc_plan *plan);
/* The message that asks for it; points into plan and pool. */
void kvc_plan_message(const struct kvc_plan *plan, const struct kvc_pool *pool, struct kvw_msg_ATTACH *out);

#endif
