/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files of the configuration. Texts are collected first, from the file and then from the command line; only then
 * are they read by kind, so that an error knows where its text came from.
 */
#ifndef KVPOOL_DAEMON_CONFIG_INTERNAL_H
#define KVPOOL_DAEMON_CONFIG_INTERNAL_H

#include "config.h"

#include <stddef.h>

enum kvd_key_kind {
	KVD_KIND_PATH,
	KVD_KIND_MODE,
	KVD_KIND_GROUP,
	KVD_KIND_USERS,
	KVD_KIND_CHOICE,
	KVD_KIND_WORD,
	KVD_KIND_NUMBER,
	KVD_KIND_BYTES,
	KVD_KIND_PLANES,
	KVD_KIND_DEVICES
};

struct kvd_key {
	const char *name;
	enum kvd_key_kind kind;
	uint64_t min;
	uint64_t max;
	const char *range;
	const char *fallback; /* NULL: must be given */
	const char *help;
	size_t offset; /* in struct kvd_config, or struct kvd_pool_draft */
	size_t size;
};

enum {
#define KVD_DAEMON_KEY(...) +1
	KVD_DAEMON_KEYS = 0
#include "config_keys.def"
	,
#define KVD_POOL_KEY(...) +1
	KVD_POOL_KEYS = 0
#include "config_keys.def"
};
extern const struct kvd_key kvd_daemon_keys[KVD_DAEMON_KEYS];
extern const struct kvd_key kvd_pool_keys[KVD_POOL_KEYS];
/* The key's index, or -1. */
int kvd_key_find(const struct kvd_key *keys, int count, const char *name);

/* The pool names' limit is inih's for section names, less "pool ". */
#define KVD_MAX_POOL_NAME_BYTES 44u
#define KVD_WHERE_BYTES 280u

/* A text and where it stands. */
struct kvd_setting {
	char *text; /* NULL: not given */
	char where[KVD_WHERE_BYTES];
	bool from_argv;
};

struct kvd_pool_draft {
	struct kvd_pool_config config;
	char where[KVD_WHERE_BYTES]; /* first named */
	uint32_t layers;
	const char *planes; /* the setting's text */
	struct kvd_setting settings[KVD_POOL_KEYS];
};

struct kvd_load {
	struct kvd_config config;
	struct kvd_setting settings[KVD_DAEMON_KEYS];
	struct kvd_pool_draft *pools[KVW_MAX_POOLS];
	uint32_t pool_count;
	const char *path; /* of the file */
	bool path_given;
	char *error;
	size_t capacity;
};

/* Where a value stands, for the sentence about it. */
struct kvd_context {
	struct kvd_load *load;
	const char *where;
	const char *section; /* "[daemon]", "[pool main]" */
	const struct kvd_key *key;
	const char *text;
};

/* Writes the sentence, unless an earlier one is there; control characters escaped. -EINVAL. */
int kvd_load_fail(struct kvd_load *load, const char *where, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* "WHERE: SECTION KEY = 'TEXT' PROBLEM; give RANGE". */
int kvd_value_fail(const struct kvd_context *context, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* config_store.c. `name` NULL: [daemon]. Makes the pool when it is new. Duplicates of one source are refused; argv wins over the file. */
int kvd_load_pool(struct kvd_load *load, const char *where, const char *name, struct kvd_pool_draft **out);
int kvd_load_set(struct kvd_load *load, const char *where, bool from_argv, const char *pool, const char *key,
		 const char *text);
void kvd_load_clear(struct kvd_load *load);

/* config_file.c */
int kvd_load_file(struct kvd_load *load);
/* config_args.c. `apply` false: finds --config, --help and the like, and what can't be understood; true: stores keys. */
int kvd_load_args(struct kvd_load *load, int argc, char **argv, bool apply);
void kvd_config_usage(FILE *out);

/* config_value.c: by kind, into base + key->offset. */
int kvd_value_read(const struct kvd_context *context, void *base);
/* A decimal number of the whole text; false when it is none or above UINT64_MAX. */
bool kvd_parse_number(const char *text, uint64_t *out);

/* config_planes.c: draft->planes over draft->layers into the geometry. */
int kvd_planes_read(const struct kvd_context *context, struct kvd_pool_draft *draft);

#endif
