/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks as JSON and as table rows. */
#include "block_list.h"

#include <errno.h>
#include <string.h>

#include "ctl.h"
#include "ipc/shm.h"
#include "text.h"

/* Bytes of a hash that the table shows. */
#define HASH_SHOWN 8u

static const char *const state_names[] = {
#define X(name, number, text) text,
	KVW_BLOCK_STATE_MAP(X)
#undef X
};

int ctl_block_state(const char *name)
{
	for (uint32_t i = 0; i < KVW_BLOCK_STATES; i++)
		if (!strcmp(state_names[i], name))
			return (int)i;
	return -1;
}

const char *ctl_block_state_name(uint64_t state)
{
	return state < KVW_BLOCK_STATES ? state_names[state] : "?";
}

int ctl_block_list_init(struct ctl_block_list *list, bool json)
{
	memset(list, 0, sizeof(*list));
	if (json)
		list->array = json_array();
	else
		list->table = ctl_table_create("ID|STATE|>GENERATION|>SESSION|>REFERENCES|>CHILDREN|>PARENT"
					       "|HASH|NOT EVICTABLE BECAUSE");
	if (list->array || list->table)
		return 0;
	ctl_complain("out of memory");
	return -ENOMEM;
}

void ctl_block_list_destroy(struct ctl_block_list *list)
{
	json_decref(list->array);
	ctl_table_destroy(list->table);
}

static json_t *block_json(const struct kvw_item_BLOCK *block)
{
	json_t *object = json_object();

	ctl_json_u64(object, "id", block->id);
	ctl_json_string(object, "state", ctl_block_state_name(block->state));
	ctl_json_u64(object, "generation", block->generation);
	ctl_json_u64(object, "session", block->session);
	ctl_json_u64(object, "references", block->references);
	ctl_json_u64(object, "children", block->children);
	json_object_set_new(object, "parent", json_integer((json_int_t)block->parent));
	ctl_json_u64(object, "namespace", block->namespace_id);
	ctl_json_u64(object, "timeline", block->timeline);
	ctl_json_u64(object, "step", block->step);
	ctl_json_u64(object, "last_use", block->last_use);
	ctl_json_u64(object, "flags", block->flags);
	ctl_json_hex(object, "hash", block->hash);
	ctl_json_text(object, "not_evictable_because", block->why);
	return object;
}

static void add_row(struct ctl_table *table, const struct kvw_item_BLOCK *block)
{
	char text[KVW_MAX_TEXT_BYTES + 1];
	uint32_t shown = block->hash.length < HASH_SHOWN ? block->hash.length : HASH_SHOWN;

	ctl_table_format(table, "%llu", (unsigned long long)block->id);
	ctl_table_text(table, ctl_block_state_name(block->state));
	ctl_table_number(table, block->generation);
	ctl_table_format(table, "%llu", (unsigned long long)block->session);
	ctl_table_number(table, block->references);
	ctl_table_number(table, block->children);
	if (block->parent < 0)
		ctl_table_text(table, "-");
	else
		ctl_table_format(table, "%lld", (long long)block->parent);
	ctl_table_text(table, shown ? ctl_hex(block->hash.at, shown, text, sizeof(text)) : "-");
	ctl_table_text(table, ctl_safe(block->why, text, sizeof(text)));
}

void ctl_block_list_add(struct ctl_block_list *list, const struct kvw_item_BLOCK *block)
{
	list->count++;
	if (list->array)
		json_array_append_new(list->array, block_json(block));
	else
		add_row(list->table, block);
}
