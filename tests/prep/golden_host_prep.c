/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_host_prep FILE...: runs every case of files like tests/golden/host_prep/trtllm_host_prep.json (its README is
 * the format) through kvpool/prep.h and the selection and score kernels. Prints a line for each comparison. Exits 0
 * when all pass, 1 when one fails, 2 when something cannot be read: a kind, a field or a form that is not known.
 */
#include "golden.h"

#include <stdio.h>
#include <string.h>

/* How the cases of a kind stand in the file. */
enum form {
	NAMED,  /* an object of cases */
	SINGLE, /* one case */
	LISTED  /* a list of cases */
};

struct kind {
	const char *name;
	enum form form;
	void (*run)(struct golden *golden);
};

static const struct kind kinds[] = {{"block_ids", NAMED, golden_block_ids},
				    {"out_cache_loc", NAMED, golden_out_cache_loc},
				    {"kv_page_indices", NAMED, golden_page_indices},
				    {"valid_blocks", NAMED, golden_valid_blocks},
				    {"select", NAMED, golden_select},
				    {"select_ties_expected", SINGLE, golden_ties},
				    {"index_score", SINGLE, golden_score},
				    {"on_update", NAMED, golden_on_update},
				    {"on_update_newest", NAMED, golden_on_update_newest},
				    {NULL, NAMED, NULL}};

/* Under "plan". */
static const struct kind plan_kinds[] = {{"split", LISTED, golden_split},
					 {"expand", SINGLE, golden_expand},
					 {"sparse_lengths", SINGLE, golden_lengths},
					 {NULL, NAMED, NULL}};

static int worse(int a, int b)
{
	return a > b ? a : b;
}

static int run_case(const char *file, const struct kind *kind, const char *name, json_t *fields)
{
	struct golden golden = {.file = file, .kind = kind->name, .name = name, .fields = fields};

	if (json_is_object(fields))
		kind->run(&golden);
	else
		golden_unreadable(&golden, name, "not an object");
	golden_free(&golden);
	return golden.result;
}

static int run_list(const char *file, const struct kind *kind, const json_t *cases)
{
	int ret = GOLDEN_PASS;
	char name[24];
	size_t i;
	json_t *one;

	json_array_foreach(cases, i, one)
	{
		snprintf(name, sizeof(name), "%zu", i);
		ret = worse(ret, run_case(file, kind, name, one));
	}
	return json_array_size(cases) ? ret : GOLDEN_UNREADABLE;
}

static int run_named(const char *file, const struct kind *kind, json_t *cases)
{
	int ret = GOLDEN_PASS;
	const char *name;
	json_t *one;

	json_object_foreach(cases, name, one)
	{
		ret = worse(ret, run_case(file, kind, name, one));
	}
	return json_object_size(cases) ? ret : GOLDEN_UNREADABLE;
}

static int run_kind(const char *file, const struct kind *kind, json_t *cases)
{
	if (kind->form == SINGLE)
		return run_case(file, kind, "", cases);
	return kind->form == LISTED ? run_list(file, kind, cases) : run_named(file, kind, cases);
}

/* Every member of an object is of one of the kinds; the legend is text. */
static int run_object(const char *file, const struct kind *known, json_t *object)
{
	int ret = json_object_size(object) ? GOLDEN_PASS : GOLDEN_UNREADABLE;
	const char *name;
	json_t *cases;

	json_object_foreach(object, name, cases)
	{
		const struct kind *kind = known;

		if (!strcmp(name, "_legend"))
			continue;
		if (known == kinds && !strcmp(name, "plan")) {
			ret = worse(ret, run_object(file, plan_kinds, cases));
			continue;
		}
		while (kind->name && strcmp(kind->name, name))
			kind++;
		if (!kind->name)
			fprintf(stderr, "%s: unknown kind '%s'\n", file, name);
		ret = worse(ret, kind->name ? run_kind(file, kind, cases) : GOLDEN_UNREADABLE);
	}
	return ret;
}

static int run_file(const char *file)
{
	json_error_t error;
	json_t *root = json_load_file(file, JSON_REJECT_DUPLICATES, &error);
	int ret;

	if (!root) {
		fprintf(stderr, "%s:%d: %s\n", file, error.line, error.text);
		return GOLDEN_UNREADABLE;
	}
	ret = run_object(file, kinds, root);
	if (ret == GOLDEN_UNREADABLE)
		fprintf(stderr, "%s: not all of it could be read\n", file);
	json_decref(root);
	return ret;
}

int main(int argc, char **argv)
{
	int ret = GOLDEN_PASS;

	if (argc < 2) {
		fprintf(stderr, "usage: golden_host_prep FILE...\n");
		return GOLDEN_UNREADABLE;
	}
	for (int i = 1; i < argc; i++)
		ret = worse(ret, run_file(argv[i]));
	return ret;
}
