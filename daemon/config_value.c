/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one text by its key's kind into the field that the table names. */
#include "config_internal.h"

#include "device_cuda.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

bool kvd_parse_number(const char *text, uint64_t *out)
{
	char *end;
	unsigned long long value;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end)
		return false;
	*out = value;
	return true;
}

static void put(const struct kvd_context *context, void *base, uint64_t value)
{
	uint8_t *field = (uint8_t *)base + context->key->offset;
	uint32_t narrow = (uint32_t)value;

	if (context->key->size == sizeof(value))
		memcpy(field, &value, sizeof(value));
	else
		memcpy(field, &narrow, sizeof(narrow));
}

static int put_in_range(const struct kvd_context *context, void *base, uint64_t value)
{
	const struct kvd_key *key = context->key;

	if (value < key->min)
		return kvd_value_fail(context, "is below the limit of %llu", (unsigned long long)key->min);
	if (value > key->max)
		return kvd_value_fail(context, "is above the limit of %llu", (unsigned long long)key->max);
	put(context, base, value);
	return 0;
}

static int read_number(const struct kvd_context *context, void *base)
{
	uint64_t value;

	if (!kvd_parse_number(context->text, &value))
		return kvd_value_fail(context, "is not a whole number");
	return put_in_range(context, base, value);
}

/* Digits, then nothing, K, M or G (1024 each). */
static int read_bytes(const struct kvd_context *context, void *base)
{
	static const char units[] = "KMG";
	char digits[32];
	uint64_t value;
	size_t length = strspn(context->text, "0123456789");
	const char *unit = context->text + length;
	const char *found = *unit ? strchr(units, toupper((unsigned char)*unit)) : NULL;
	uint64_t scale = found ? 1024ull << (10 * (found - units)) : 1;

	if ((*unit && (!found || unit[1])) || length >= sizeof(digits))
		return kvd_value_fail(context, "is not a size");
	memcpy(digits, context->text, length);
	digits[length] = '\0';
	if (!kvd_parse_number(digits, &value))
		return kvd_value_fail(context, "is not a size");
	if (__builtin_mul_overflow(value, scale, &value))
		value = UINT64_MAX;
	return put_in_range(context, base, value);
}

static int read_mode(const struct kvd_context *context, void *base)
{
	size_t digits = strspn(context->text, "01234567");

	if (!digits || context->text[digits])
		return kvd_value_fail(context, "is not an octal number");
	if (digits > 8 || strtoul(context->text, NULL, 8) > context->key->max)
		return kvd_value_fail(context, "is above the limit of 0777");
	put(context, base, strtoul(context->text, NULL, 8));
	return 0;
}

static int read_text(const struct kvd_context *context, void *base)
{
	size_t length = strlen(context->text);

	if (!length)
		return kvd_value_fail(context, "is empty");
	if (length >= context->key->size)
		return kvd_value_fail(context, "has %zu bytes, above the limit of %zu", length,
				      context->key->size - 1);
	memcpy((uint8_t *)base + context->key->offset, context->text, length + 1);
	return 0;
}

/* The text's place among the words "a|b|c", or -1. */
static int place_of(const char *words, const char *text)
{
	size_t length = strlen(text);

	for (int place = 0;; place++) {
		size_t word = strcspn(words, "|");

		if (word == length && !memcmp(words, text, length))
			return place;
		if (!words[word])
			return -1;
		words += word + 1;
	}
}

static int read_choice(const struct kvd_context *context, void *base)
{
	int place = place_of(context->key->range, context->text);

	if (place < 0)
		return kvd_value_fail(context, "is not one of the choices");
	put(context, base, context->key->min + (uint64_t)place);
	return 0;
}

static int read_word(const struct kvd_context *context, void *base)
{
	if (place_of(context->key->range, context->text) < 0)
		return kvd_value_fail(context, "is not one of the choices");
	return read_text(context, base);
}

static int read_group(const struct kvd_context *context, void *base)
{
	const struct group *group;
	uint64_t gid = (gid_t)-1;

	if (context->text[0] && !kvd_parse_number(context->text, &gid)) {
		group = getgrnam(context->text);
		if (!group)
			return kvd_value_fail(context, "is no group of this machine");
		gid = group->gr_gid;
	} else if (context->text[0] && gid >= (gid_t)-1) {
		return kvd_value_fail(context, "is above the limit of %u", (gid_t)-2);
	}
	put(context, base, gid);
	return 0;
}

static int find_user(const struct kvd_context *context, const char *name, uid_t *out)
{
	const struct passwd *user;
	uint64_t uid;

	if (kvd_parse_number(name, &uid)) {
		if (uid >= (uid_t)-1)
			return kvd_value_fail(context, "has the uid %.40s, above the limit of %u", name,
					      (uid_t)-2);
	} else {
		user = getpwnam(name);
		if (!user)
			return kvd_value_fail(context, "names '%.40s', who is no user of this machine", name);
		uid = user->pw_uid;
	}
	*out = (uid_t)uid;
	return 0;
}

static char *trim(char *text)
{
	size_t length;

	text += strspn(text, " \t");
	length = strlen(text);
	while (length && strchr(" \t", text[length - 1]))
		text[--length] = '\0';
	return text;
}

static int read_users(const struct kvd_context *context, struct kvd_config *config)
{
	char *copy = strdup(context->text);
	char *rest = copy;
	char *name;
	int ret = 0;

	if (!copy)
		return -ENOMEM;
	if (!*trim(copy))
		rest = NULL;
	while (!ret && (name = strsep(&rest, ","))) {
		if (config->admin_count == KVD_MAX_ADMINS)
			ret = kvd_value_fail(context, "names more than %u users", KVD_MAX_ADMINS);
		else
			ret = find_user(context, trim(name), &config->admins[config->admin_count]);
		config->admin_count += !ret;
	}
	free(copy);
	return ret;
}

static int keep_text(const struct kvd_context *context, void *base)
{
	memcpy((uint8_t *)base + context->key->offset, &context->text, sizeof(context->text));
	return 0;
}

static int read_devices(const struct kvd_context *context, void *base)
{
	if (strchr(context->text, ','))
		return kvd_value_fail(context,
				      "is refused: more than one device is not supported by this version, "
				      "the limit is 1; give one, or make a pool for each");
	if (strcmp(context->text, "host") != 0 && kvd_cuda_check_name(context->text))
		return kvd_value_fail(context, "is no device");
	return read_text(context, base);
}

int kvd_value_read(const struct kvd_context *context, void *base)
{
	switch (context->key->kind) {
	case KVD_KIND_PATH:
		return read_text(context, base);
	case KVD_KIND_MODE:
		return read_mode(context, base);
	case KVD_KIND_GROUP:
		return read_group(context, base);
	case KVD_KIND_USERS:
		return read_users(context, base);
	case KVD_KIND_CHOICE:
		return read_choice(context, base);
	case KVD_KIND_WORD:
		return read_word(context, base);
	case KVD_KIND_NUMBER:
		return read_number(context, base);
	case KVD_KIND_BYTES:
		return read_bytes(context, base);
	case KVD_KIND_DEVICES:
		return read_devices(context, base);
	case KVD_KIND_PLANES: /* they wait for `layers` and `block_tokens` */
		return keep_text(context, base);
	default:
		return -EINVAL;
	}
}
