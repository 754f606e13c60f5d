/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl probe: where a hash is, or how far a prompt's blocks are there. --tokens reads numbers
 * (separated by anything that is no digit) and hashes them as libkvpool does, without extra keys; it stops
 * at the first block that is missing, as an open does.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin.h"
#include "block_list.h"
#include "ipc/hash.h"
#include "text.h"

struct options {
	struct ctl_global global;
	const char *pool;
	const char *tokens;
	uint64_t namespace_id;
};

static const struct ctl_option table[] = {
	{"pool", CTL_TEXT, "NAME", NULL, NULL, 0, 0, offsetof(struct options, pool),
	 "in this pool; else the only one"},
	{"tokens", CTL_TEXT, "FILE", NULL, NULL, 0, 0, offsetof(struct options, tokens),
	 "instead of a hash: token numbers of a prompt ('-': standard input)"},
	{"namespace", CTL_U64, "ID", "0", NULL, 0, UINT32_MAX, offsetof(struct options, namespace_id),
	 "only in this namespace; 0: in all"},
};

struct tokens {
	uint32_t *at;
	uint32_t count;
	uint64_t value; /* of the number that is being read */
	bool inside;    /* of a number */
};

/* A prompt longer than the longest row cannot be opened either. */
#define MAX_TOKENS (KVW_MAX_ROW_BLOCKS * 64u)

static int append(struct tokens *tokens)
{
	/* Grows at powers of two. */
	if (!(tokens->count & (tokens->count - 1))) {
		uint32_t *at =
			reallocarray(tokens->at, tokens->count ? 2 * (size_t)tokens->count : 1, sizeof(*at));

		if (!at)
			return -ENOMEM;
		tokens->at = at;
	}
	tokens->at[tokens->count++] = (uint32_t)tokens->value;
	tokens->value = 0;
	return 0;
}

/*
 * One character: a digit continues a number, anything else ends it. -ERANGE: above 32 bits; -E2BIG: too
 * many.
 */
static int take_character(struct tokens *tokens, int c)
{
	if (c != EOF && isdigit(c)) {
		tokens->value = tokens->value * 10 + (uint64_t)(c - '0');
		tokens->inside = true;
		return tokens->value > UINT32_MAX ? -ERANGE : 0;
	}
	if (!tokens->inside)
		return 0;
	tokens->inside = false;
	return tokens->count < MAX_TOKENS ? append(tokens) : -E2BIG;
}

static int read_tokens(FILE *file, struct tokens *out)
{
	int ret;
	int c;

	do {
		c = fgetc(file);
		ret = take_character(out, c);
	} while (c != EOF && !ret);
	return !ret && ferror(file) ? -errno : ret;
}

static int load_tokens(const char *path, struct tokens *out)
{
	bool standard = !strcmp(path, "-");
	FILE *file = standard ? stdin : fopen(path, "re");
	int ret;

	if (!file) {
		ret = -errno;
		ctl_complain("cannot read '%s': %s", path, strerror(-ret));
		return ret;
	}
	ret = read_tokens(file, out);
	if (!standard)
		fclose(file);
	if (ret == -ERANGE)
		ctl_complain("'%s': token %u is above %u", path, out->count + 1, UINT32_MAX);
	else if (ret)
		ctl_complain("'%s': %s after %u tokens", path, ret == -E2BIG ? "too long" : strerror(-ret),
			     out->count);
	return ret;
}

/* Places of one hash; their number, or a negative error. */
static int probe_hash(struct ctl_admin *admin, const struct options *options, struct kvw_bytes hash,
		      struct ctl_block_list *list)
{
	struct kvw_msg_PROBE request = {.pool = kvw_text_of(options->pool ? options->pool : ""),
					.hash = hash,
					.namespace_id = options->namespace_id};
	struct kvw_item_BLOCK block;
	union kvw_any reply;
	int found = 0;
	int ret = ctl_admin_call_on(admin, options->pool, KVW_MSG_PROBE, &request, &reply);

	if (ret)
		return ret;
	for (; kvw_list_next(&reply.PROBE_OK.blocks, KVW_ITEM_BLOCK, &block); found++)
		ctl_block_list_add(list, &block);
	return found;
}

/* Leading blocks of the prompt that are there, or a negative error. */
static int probe_prompt(struct ctl_admin *admin, const struct options *options, const struct tokens *tokens,
			uint32_t block_tokens, struct ctl_block_list *list)
{
	uint8_t hash[KVW_SHA256_BYTES];
	struct kvw_hasher *hasher;
	uint32_t blocks = tokens->count / block_tokens;
	uint32_t i;
	int ret = kvw_hasher_create(&hasher);

	if (ret)
		return ret;
	for (i = 0; i < blocks; i++) {
		ret = kvw_hash_block(hasher, i ? hash : NULL, tokens->at + (size_t)i * block_tokens,
				     block_tokens, NULL, 0, hash);
		if (!ret)
			ret = probe_hash(admin, options, kvw_bytes_of(hash, sizeof(hash)), list);
		if (ret <= 0)
			break;
	}
	kvw_hasher_destroy(hasher);
	return ret < 0 ? ret : (int)i;
}

static int print(const struct ctl_block_list *list, uint32_t found, uint32_t asked)
{
	char text[2][CTL_TEXT_BYTES];

	if (list->array)
		return ctl_json_print(json_pack("{s:O, s:I, s:I}", "blocks", list->array, "found",
						(json_int_t)found, "asked", (json_int_t)asked));
	if (list->count && ctl_table_print(list->table, stdout))
		return CTL_FAULT;
	printf("%s of %s blocks are there\n", ctl_number(found, text[0], sizeof(text[0])),
	       ctl_number(asked, text[1], sizeof(text[1])));
	return CTL_OK;
}

static int run_hash(struct ctl_admin *admin, const struct options *options, const char *text,
		    struct ctl_block_list *list)
{
	uint8_t hash[KVW_MAX_HASH_BYTES];
	int length = ctl_unhex(text, hash, sizeof(hash));
	int found;

	if (length < 0) {
		ctl_complain("'%.140s' is no hash: give 1 to %u bytes in hex", text, KVW_MAX_HASH_BYTES);
		return CTL_USAGE;
	}
	found = probe_hash(admin, options, kvw_bytes_of(hash, (size_t)length), list);
	return found < 0 ? CTL_DAEMON : print(list, found > 0, 1);
}

static int run_tokens(struct ctl_admin *admin, const struct options *options, const struct tokens *tokens,
		      struct ctl_block_list *list)
{
	struct kvw_msg_POOL request = {.name = kvw_text_of(options->pool ? options->pool : "")};
	union kvw_any reply;
	uint32_t block_tokens;
	int found;

	if (ctl_admin_call_on(admin, options->pool, KVW_MSG_POOL, &request, &reply))
		return CTL_DAEMON;
	block_tokens = (uint32_t)reply.POOL_OK.block_tokens;
	if (!block_tokens || reply.POOL_OK.block_tokens > KVW_MAX_BLOCK_TOKENS) {
		ctl_complain("the daemon says that a block has %" PRIu64 " tokens",
			     reply.POOL_OK.block_tokens);
		return CTL_DAEMON;
	}
	found = probe_prompt(admin, options, tokens, block_tokens, list);
	return found < 0 ? CTL_DAEMON : print(list, (uint32_t)found, tokens->count / block_tokens);
}

static int run_connected(const struct options *options, const char *hash, const struct tokens *tokens)
{
	struct ctl_block_list list;
	struct ctl_admin *admin;
	int code = CTL_FAULT;

	if (ctl_admin_open(&options->global, &admin))
		return CTL_DAEMON;
	if (!ctl_block_list_init(&list, options->global.json)) {
		code = hash ? run_hash(admin, options, hash, &list)
			    : run_tokens(admin, options, tokens, &list);
		ctl_block_list_destroy(&list);
	}
	ctl_admin_close(admin);
	return code;
}

static int run(const void *opaque, char *const *operands)
{
	const struct options *options = opaque;
	struct tokens tokens = {0};
	int code = CTL_USAGE;

	if (!options->tokens == !operands[0]) {
		ctl_complain("probe needs either HASH or --tokens FILE");
		return CTL_USAGE;
	}
	if (!options->tokens || !load_tokens(options->tokens, &tokens))
		code = run_connected(options, operands[0], &tokens);
	free(tokens.at);
	return code;
}

const struct ctl_verb ctl_verb_probe = {
	.name = "probe",
	.operands = "[HASH]",
	.summary = "Show where a block's hash is, or how much of a prompt is there",
	.max_operands = 1,
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.options_bytes = sizeof(struct options),
	.run = run,
};
