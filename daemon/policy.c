/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The eviction policies there are, by name.
 */
#include "policy.h"

#include <stddef.h>
#include <string.h>

const struct kvd_policy_ops *kvd_policy_find(const char *name)
{
	return name && strcmp(name, kvd_policy_lru.name) == 0 ? &kvd_policy_lru : NULL;
}

const char *kvd_policy_names(void)
{
	return "lru";
}
