/* SPDX-License-Identifier: Apache-2.0 */
/* kvpoolctl check: the daemon rebuilds every list and count from its records and compares. */
#include <stdio.h>

#include "admin.h"
#include "json.h"
#include "text.h"

static int print_json(const struct kvw_msg_CHECK_OK *check)
{
	struct kvw_list texts = check->texts;
	struct kvw_item_TEXT text;
	json_t *root = json_object();
	json_t *array = json_array();

	ctl_json_u64(root, "blocks", check->blocks);
	ctl_json_u64(root, "faults", check->faults);
	while (kvw_list_next(&texts, KVW_ITEM_TEXT, &text))
		json_array_append_new(array,
				      json_stringn(text.text.length ? text.text.at : "", text.text.length));
	json_object_set_new(root, "texts", array);
	return ctl_json_print(root);
}

static int print_text(const struct kvw_msg_CHECK_OK *check)
{
	struct kvw_list texts = check->texts;
	struct kvw_item_TEXT text;
	char line[KVW_MAX_TEXT_BYTES + 1];
	char blocks[CTL_TEXT_BYTES];
	char faults[CTL_TEXT_BYTES];

	printf("%s blocks checked, %s faults\n", ctl_number(check->blocks, blocks, sizeof(blocks)),
	       check->faults ? ctl_number(check->faults, faults, sizeof(faults)) : "no");
	while (kvw_list_next(&texts, KVW_ITEM_TEXT, &text))
		printf("  %s\n", ctl_safe(text.text, line, sizeof(line)));
	if (check->faults > check->texts.count)
		printf("  and %s more\n",
		       ctl_number(check->faults - check->texts.count, faults, sizeof(faults)));
	return CTL_OK;
}

static int show(const union kvw_any *reply, bool json)
{
	int code = json ? print_json(&reply->CHECK_OK) : print_text(&reply->CHECK_OK);

	return reply->CHECK_OK.faults ? CTL_FAULT : code;
}

static int run(const void *options, char *const *operands)
{
	struct kvw_msg_CHECK request = {.pool = kvw_text_of(operands[0] ? operands[0] : "")};

	return ctl_admin_show(options, KVW_MSG_CHECK, &request, show);
}

const struct ctl_verb ctl_verb_check = {
	.name = "check",
	.operands = "[POOL]",
	.summary = "Compare the daemon's books with its records; 1 when they differ",
	.max_operands = 1,
	.options_bytes = sizeof(struct ctl_global),
	.run = run,
};
