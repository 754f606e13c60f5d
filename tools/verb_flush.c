/* SPDX-License-Identifier: Apache-2.0 */
/* kvpoolctl flush: frees what nobody references, and says what is left. */
#include <stdio.h>

#include "admin.h"
#include "json.h"
#include "text.h"

static int print_json(const struct kvw_msg_FLUSH_OK *flush)
{
	json_t *root = json_object();

	ctl_json_u64(root, "freed", flush->freed);
	ctl_json_u64(root, "still_referenced", flush->still_referenced);
	ctl_json_u64(root, "pending", flush->pending);
	return ctl_json_print(root);
}

static int print_text(const struct kvw_msg_FLUSH_OK *flush)
{
	char text[3][CTL_TEXT_BYTES];

	printf("%s blocks freed, %s still referenced, %s still being written\n",
	       ctl_number(flush->freed, text[0], sizeof(text[0])),
	       ctl_number(flush->still_referenced, text[1], sizeof(text[1])),
	       ctl_number(flush->pending, text[2], sizeof(text[2])));
	return CTL_OK;
}

static int show(const union kvw_any *reply, bool json)
{
	return json ? print_json(&reply->FLUSH_OK) : print_text(&reply->FLUSH_OK);
}

static int run(const void *options, char *const *operands)
{
	struct kvw_msg_FLUSH request = {.pool = kvw_text_of(operands[0] ? operands[0] : "")};

	return ctl_admin_show(options, KVW_MSG_FLUSH, &request, show);
}

const struct ctl_verb ctl_verb_flush = {
	.name = "flush",
	.operands = "[POOL]",
	.summary = "Free every unreferenced cached block; tell what is still referenced",
	.max_operands = 1,
	.options_bytes = sizeof(struct ctl_global),
	.run = run,
};
