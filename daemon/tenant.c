/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants by uid; few, so a list.
 */
#include "tenant.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* What the books know of a tenant, and how many engines keep it. */
struct counted_tenant {
	struct kvd_tenant tenant; /* first: the two pointers convert */
	uint32_t engines;
};

static struct counted_tenant *counted(struct kvd_tenant *tenant)
{
	return (struct counted_tenant *)tenant;
}

static struct kvd_tenant *find(const struct kvd_tenants *tenants, uint32_t uid)
{
	struct kvd_tenant *tenant = tenants->first;

	while (tenant && tenant->uid != uid)
		tenant = tenant->next;
	return tenant;
}

int kvd_tenant_acquire(struct kvd_tenants *tenants, uint32_t uid, struct kvd_tenant **out)
{
	struct kvd_tenant *tenant = find(tenants, uid);

	if (!tenant) {
		struct counted_tenant *fresh = calloc(1, sizeof(*fresh));

		if (!fresh)
			return -ENOMEM;
		tenant = &fresh->tenant;
		tenant->uid = uid;
		tenant->quota_blocks = tenants->quota_blocks;
		tenant->next = tenants->first;
		tenants->first = tenant;
	}
	counted(tenant)->engines++;
	*out = tenant;
	return 0;
}

/* Frees every tenant that nothing keeps, or all. */
static void sweep(struct kvd_tenants *tenants, bool all)
{
	struct kvd_tenant **link = &tenants->first;

	while (*link) {
		struct kvd_tenant *tenant = *link;

		if (!all && (counted(tenant)->engines || tenant->used_blocks)) {
			link = &tenant->next;
			continue;
		}
		*link = tenant->next;
		free(counted(tenant));
	}
}

void kvd_tenant_release(struct kvd_tenants *tenants, struct kvd_tenant *tenant)
{
	counted(tenant)->engines--;
	sweep(tenants, false);
}

void kvd_tenants_destroy(struct kvd_tenants *tenants)
{
	sweep(tenants, true);
}
