/* SPDX-License-Identifier: Apache-2.0 */
/* kvpoolctl blocks: blocks by state and owner, and why one is not evictable. */
#include <stdio.h>

#include "admin.h"
#include "block_list.h"

struct options {
	struct ctl_global global;
	const char *pool;
	const char *state;
	uint64_t session;
	uint64_t from;
	uint64_t limit;
};

static const struct ctl_option table[] = {
	{"pool", CTL_TEXT, "NAME", NULL, NULL, 0, 0, offsetof(struct options, pool),
	 "of this pool; else the only one"},
	{"state", CTL_TEXT, "STATE", NULL, "free|leased|pending|cached|orphan|draining|frozen|quarantined", 0,
	 0, offsetof(struct options, state), "only in this state"},
	{"session", CTL_U64, "ID", NULL, NULL, 1, UINT64_MAX, offsetof(struct options, session),
	 "only those that this session owns or wrote"},
	{"from", CTL_U64, "ID", "0", NULL, 0, KVW_MAX_BLOCKS, offsetof(struct options, from),
	 "begin at this block"},
	{"limit", CTL_U64, "N", "100", NULL, 1, KVW_MAX_BLOCKS, offsetof(struct options, limit),
	 "at most this many"},
};

/* A daemon that makes no progress, or names a block that no pool can have, does not keep us. */
static bool goes_on(uint64_t from, uint64_t next)
{
	return next > from && next < 2 * (uint64_t)KVW_MAX_BLOCKS;
}

/*
 * The daemon answers in pages. *next: where the rest begins, 0 at the end. `from` must grow, whatever the
 * daemon says.
 */
static int collect(struct ctl_admin *admin, const struct options *options, struct ctl_block_list *list,
		   uint64_t *next)
{
	struct kvw_msg_BLOCKS request = {.pool = kvw_text_of(options->pool ? options->pool : ""),
					 .from = options->from,
					 .session = options->session};
	struct kvw_item_BLOCK block;
	union kvw_any reply;
	int ret;

	request.state = options->state ? 1 + (uint64_t)ctl_block_state(options->state) : 0;
	do {
		uint64_t left = options->limit - list->count;

		request.limit = left < 256 ? left : 256;
		ret = ctl_admin_call_on(admin, options->pool, KVW_MSG_BLOCKS, &request, &reply);
		if (ret)
			return ret;
		while (list->count < options->limit &&
		       kvw_list_next(&reply.BLOCKS_OK.blocks, KVW_ITEM_BLOCK, &block))
			ctl_block_list_add(list, &block);
		*next = goes_on(request.from, reply.BLOCKS_OK.next) ? reply.BLOCKS_OK.next : 0;
		request.from = *next;
	} while (*next && list->count < options->limit);
	return 0;
}

static int print(const struct ctl_block_list *list, uint64_t next)
{
	if (list->array)
		return ctl_json_print(
			json_pack("{s:O, s:I}", "blocks", list->array, "next", (json_int_t)next));
	if (ctl_table_print(list->table, stdout))
		return CTL_FAULT;
	if (next)
		printf("there may be more: go on with --from %llu\n", (unsigned long long)next);
	return CTL_OK;
}

static int run_connected(struct ctl_admin *admin, const struct options *options)
{
	struct ctl_block_list list;
	uint64_t next = 0;
	int code;

	if (ctl_block_list_init(&list, options->global.json))
		return CTL_FAULT;
	code = collect(admin, options, &list, &next) ? CTL_DAEMON : print(&list, next);
	ctl_block_list_destroy(&list);
	return code;
}

static int run(const void *opaque, char *const *operands)
{
	const struct options *options = opaque;
	struct ctl_admin *admin;
	int code;

	(void)operands;
	if (ctl_admin_open(&options->global, &admin))
		return CTL_DAEMON;
	code = run_connected(admin, options);
	ctl_admin_close(admin);
	return code;
}

const struct ctl_verb ctl_verb_blocks = {
	.name = "blocks",
	.operands = "",
	.summary = "List blocks by state and owner, and why one is not evictable",
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.options_bytes = sizeof(struct options),
	.run = run,
};
