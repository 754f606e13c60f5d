/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tenants of one pool: one a uid. A tenant stays while an engine of it is attached, closing, or waits
 * for its proof, so that what its dead left counts against its quota.
 */
#ifndef KVPOOL_DAEMON_TENANT_H
#define KVPOOL_DAEMON_TENANT_H

#include <stdint.h>

#include "pool.h"

struct kvd_tenants {
	struct kvd_tenant *first;
	uint64_t quota_blocks; /* of each; UINT64_MAX: none */
};

/* Finds or makes the tenant of `uid` and counts an engine of it. -ENOMEM. */
int kvd_tenant_acquire(struct kvd_tenants *tenants, uint32_t uid, struct kvd_tenant **out);
/* One engine less; frees tenants without engines and blocks. */
void kvd_tenant_release(struct kvd_tenants *tenants, struct kvd_tenant *tenant);
void kvd_tenants_destroy(struct kvd_tenants *tenants);

#endif
