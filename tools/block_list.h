/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks as JSON and as table rows: what 'blocks' and 'probe' both print. */
#ifndef KVPOOL_TOOLS_BLOCK_LIST_H
#define KVPOOL_TOOLS_BLOCK_LIST_H

#include <stdbool.h>

#include "json.h"
#include "table.h"

struct ctl_block_list {
	json_t *array; /* one of the two */
	struct ctl_table *table;
	uint32_t count;
};

int ctl_block_list_init(struct ctl_block_list *list, bool json);
void ctl_block_list_destroy(struct ctl_block_list *list);
void ctl_block_list_add(struct ctl_block_list *list, const struct kvw_item_BLOCK *block);
/* Number of a state's name, -1 when there is none; name of a number. */
int ctl_block_state(const char *name);
const char *ctl_block_state_name(uint64_t state);

#endif
