/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output. */
#include "json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "ctl.h"
#include "text.h"

/* A field was lost for want of memory: the object must not pass for a whole one. */
static bool lost;

static void set(json_t *object, const char *key, json_t *value)
{
	lost |= json_object_set_new(object, key, value) != 0;
}

void ctl_json_u64(json_t *object, const char *key, uint64_t value)
{
	char text[CTL_TEXT_BYTES];

	if (value <= INT64_MAX) {
		set(object, key, json_integer((json_int_t)value));
		return;
	}
	snprintf(text, sizeof(text), "%" PRIu64, value);
	set(object, key, json_string(text));
}

void ctl_json_text(json_t *object, const char *key, struct kvw_text text)
{
	set(object, key, text.length ? json_stringn(text.at, text.length) : json_string(""));
}

void ctl_json_string(json_t *object, const char *key, const char *text)
{
	set(object, key, json_string(text));
}

void ctl_json_hex(json_t *object, const char *key, struct kvw_bytes bytes)
{
	char text[2 * KVW_MAX_HASH_BYTES + 1];

	set(object, key, json_string(ctl_hex(bytes.at, bytes.length, text, sizeof(text))));
}

void ctl_json_null(json_t *object, const char *key)
{
	set(object, key, json_null());
}

void ctl_json_number_or_null(json_t *object, const char *key, bool known, uint64_t value)
{
	if (known)
		ctl_json_u64(object, key, value);
	else
		ctl_json_null(object, key);
}

void ctl_json_quota(json_t *object, uint64_t blocks)
{
	ctl_json_number_or_null(object, "quota_blocks", blocks && blocks != UINT64_MAX, blocks);
}

int ctl_json_print(json_t *root)
{
	int failed = !root || lost || json_dumpf(root, stdout, JSON_INDENT(2));

	json_decref(root);
	if (failed) {
		ctl_complain("cannot write the result as JSON");
		return CTL_FAULT;
	}
	putchar('\n');
	return CTL_OK;
}
