/* SPDX-License-Identifier: Apache-2.0 */
/* jansson with what the verbs need: fields from the wire's types, and one way to print. */
#ifndef KVPOOL_TOOLS_JSON_H
#define KVPOOL_TOOLS_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/wire.h"

/* Fields of an object; out of memory shows in ctl_json_print(). Numbers above 2^63 - 1 are given as text. */
void ctl_json_u64(json_t *object, const char *key, uint64_t value);
void ctl_json_text(json_t *object, const char *key, struct kvw_text text);
void ctl_json_string(json_t *object, const char *key, const char *text);
void ctl_json_hex(json_t *object, const char *key, struct kvw_bytes bytes);
void ctl_json_null(json_t *object, const char *key);
/* null when it is not known. */
void ctl_json_number_or_null(json_t *object, const char *key, bool known, uint64_t value);
/* "quota_blocks": null when there is none, which the daemon tells as 0. */
void ctl_json_quota(json_t *object, uint64_t blocks);

/* Prints and releases it; the exit code. */
int ctl_json_print(json_t *root);

#endif
