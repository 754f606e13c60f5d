/* SPDX-License-Identifier: Apache-2.0 */
/* The key table, the texts collected for it, and the sentences about them. */
#include "config_internal.h"

#include "log.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define KEY(structure, text, field, KIND, lowest, highest, words, otherwise, about)                          \
	{.name = text,                                                                                       \
	 .kind = KVD_KIND_##KIND,                                                                            \
	 .min = lowest,                                                                                      \
	 .max = highest,                                                                                     \
	 .range = words,                                                                                     \
	 .fallback = otherwise,                                                                              \
	 .help = about,                                                                                      \
	 .offset = offsetof(struct structure, field),                                                        \
	 .size = sizeof(((struct structure *)0)->field)},

const struct kvd_key kvd_daemon_keys[] = {
#define KVD_DAEMON_KEY(name, ...) KEY(kvd_config, #name, __VA_ARGS__)
#include "config_keys.def"
};
const struct kvd_key kvd_pool_keys[] = {
#define KVD_POOL_KEY(name, ...) KEY(kvd_pool_draft, #name, __VA_ARGS__)
#include "config_keys.def"
};

int kvd_key_find(const struct kvd_key *keys, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(keys[i].name, name))
			return i;
	return -1;
}

int kvd_load_fail(struct kvd_load *load, const char *where, const char *format, ...)
{
	char sentence[1024];
	char full[1024 + KVD_WHERE_BYTES];
	va_list args;

	if (load->error[0])
		return -EINVAL;
	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	snprintf(full, sizeof(full), "%s: %s", where, sentence);
	kvd_log_escape(full, load->error, load->capacity);
	return -EINVAL;
}

int kvd_value_fail(const struct kvd_context *context, const char *format, ...)
{
	char problem[512];
	va_list args;

	va_start(args, format);
	vsnprintf(problem, sizeof(problem), format, args);
	va_end(args);
	return kvd_load_fail(context->load, context->where, "%s %s = '%.80s' %s; give %s", context->section,
			     context->key->name, context->text, problem, context->key->range);
}

static void list_keys(const struct kvd_key *keys, int count, char *out, size_t capacity)
{
	size_t used = 0;

	out[0] = '\0';
	for (int i = 0; i < count && used < capacity; i++)
		used += (size_t)snprintf(out + used, capacity - used, "%s%s", i ? ", " : "", keys[i].name);
}

static bool is_name(const char *text)
{
	for (const char *c = text; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
			return false;
	return text[0] && strlen(text) <= KVD_MAX_POOL_NAME_BYTES;
}

static struct kvd_pool_draft *find_pool(struct kvd_load *load, const char *name)
{
	for (uint32_t i = 0; i < load->pool_count; i++)
		if (!strcmp(load->pools[i]->config.name, name))
			return load->pools[i];
	return NULL;
}

int kvd_load_pool(struct kvd_load *load, const char *where, const char *name, struct kvd_pool_draft **out)
{
	struct kvd_pool_draft *draft;

	if (!is_name(name))
		return kvd_load_fail(
			load, where,
			"pool name '%.80s' is not made of 1 to %u letters, digits, _ and -; rename it", name,
			KVD_MAX_POOL_NAME_BYTES);
	draft = find_pool(load, name);
	if (!draft) {
		if (load->pool_count == KVW_MAX_POOLS)
			return kvd_load_fail(load, where,
					     "pool '%s' is one more than the limit of %u pools; remove one",
					     name, KVW_MAX_POOLS);
		draft = calloc(1, sizeof(*draft));
		if (!draft)
			return -ENOMEM;
		snprintf(draft->config.name, sizeof(draft->config.name), "%s", name);
		snprintf(draft->where, sizeof(draft->where), "%s", where);
		load->pools[load->pool_count++] = draft;
	}
	*out = draft;
	return 0;
}

static int store(struct kvd_load *load, struct kvd_setting *setting, const char *section, const char *key,
		 const char *where, bool from_argv, const char *text)
{
	if (setting->text && setting->from_argv == from_argv)
		return kvd_load_fail(load, where, "%s %s is already set at %s; remove one of the two",
				     section, key, setting->where);
	free(setting->text);
	setting->text = strdup(text);
	if (!setting->text)
		return -ENOMEM;
	snprintf(setting->where, sizeof(setting->where), "%s", where);
	setting->from_argv = from_argv;
	return 0;
}

static int unknown_key(struct kvd_load *load, const char *where, const char *section, const char *key,
		       const struct kvd_key *keys, int count)
{
	char known[512];

	list_keys(keys, count, known, sizeof(known));
	return kvd_load_fail(load, where, "%s has no key '%.80s'; its keys are %s", section, key, known);
}

static int set_daemon(struct kvd_load *load, const char *where, bool from_argv, const char *key,
		      const char *text)
{
	int i = kvd_key_find(kvd_daemon_keys, KVD_DAEMON_KEYS, key);

	if (i < 0)
		return unknown_key(load, where, "[daemon]", key, kvd_daemon_keys, KVD_DAEMON_KEYS);
	return store(load, &load->settings[i], "[daemon]", key, where, from_argv, text);
}

int kvd_load_set(struct kvd_load *load, const char *where, bool from_argv, const char *pool, const char *key,
		 const char *text)
{
	struct kvd_pool_draft *draft;
	char section[64];
	int i;
	int ret;

	if (!pool)
		return set_daemon(load, where, from_argv, key, text);
	ret = kvd_load_pool(load, where, pool, &draft);
	if (ret < 0)
		return ret;
	snprintf(section, sizeof(section), "[pool %s]", pool);
	i = kvd_key_find(kvd_pool_keys, KVD_POOL_KEYS, key);
	if (i < 0)
		return unknown_key(load, where, section, key, kvd_pool_keys, KVD_POOL_KEYS);
	return store(load, &draft->settings[i], section, key, where, from_argv, text);
}

void kvd_load_clear(struct kvd_load *load)
{
	for (int i = 0; i < KVD_DAEMON_KEYS; i++)
		free(load->settings[i].text);
	for (uint32_t i = 0; i < load->pool_count; i++) {
		for (int k = 0; k < KVD_POOL_KEYS; k++)
			free(load->pools[i]->settings[k].text);
		free(load->pools[i]);
	}
}
