/* SPDX-License-Identifier: Apache-2.0 */
#include "golden_case.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_line(struct golden_case *golden, const char *line)
{
	char key[GOLDEN_NAME_BYTES];
	char value[64];
	char *end;

	if (sscanf(line, "%31[^=]=%63s", key, value) != 2 || golden->arg_count == GOLDEN_MAX_ARGS)
		return -EINVAL;
	if (!strcmp(key, "op"))
		return snprintf(golden->op, sizeof(golden->op), "%s", value) < (int)sizeof(golden->op)
			       ? 0
			       : -EINVAL;
	memcpy(golden->args[golden->arg_count].key, key, sizeof(key));
	golden->args[golden->arg_count].value = strtod(value, &end);
	golden->arg_count++;
	return *end ? -EINVAL : 0;
}

static int load_args(struct golden_case *golden)
{
	char path[4096];
	char line[256];
	FILE *file;
	int ret = 0;

	snprintf(path, sizeof(path), "%s/args.txt", golden->dir);
	file = fopen(path, "re");
	if (!file) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -EINVAL;
	}
	while (!ret && fgets(line, sizeof(line), file))
		if (line[0] != '\n')
			ret = parse_line(golden, line);
	fclose(file);
	if (ret || !golden->op[0]) {
		fprintf(stderr, "%s: not lines of key=value with an op\n", path);
		return -EINVAL;
	}
	return 0;
}

static int load_array(struct golden_case *golden, const char *file)
{
	size_t length = strlen(file) - strlen(".npy");
	char path[4096];
	int ret;

	if (golden->array_count == GOLDEN_MAX_ARRAYS || length >= GOLDEN_NAME_BYTES) {
		fprintf(stderr, "%s/%s: too many arrays, or too long a name\n", golden->dir, file);
		return -EINVAL;
	}
	snprintf(path, sizeof(path), "%s/%s", golden->dir, file);
	ret = npy_read(path, &golden->arrays[golden->array_count].npy);
	if (ret)
		return ret;
	memcpy(golden->arrays[golden->array_count].name, file, length);
	golden->array_count++;
	return 0;
}

static bool is_array(const char *file)
{
	size_t length = strlen(file);

	return length > 4 && !strcmp(file + length - 4, ".npy");
}

int golden_load(const char *dir, struct golden_case *out)
{
	struct golden_case golden = {.dir = dir};
	struct dirent *entry;
	int ret = load_args(&golden);
	DIR *folder;

	if (ret)
		return ret;
	folder = opendir(dir);
	if (!folder)
		return -EINVAL;
	while (!ret && (entry = readdir(folder)))
		if (is_array(entry->d_name))
			ret = load_array(&golden, entry->d_name);
	closedir(folder);
	if (ret) {
		golden_free(&golden);
		return ret;
	}
	*out = golden;
	return 0;
}

void golden_free(struct golden_case *golden)
{
	for (int i = 0; i < golden->array_count; i++)
		npy_free(&golden->arrays[i].npy);
	golden->array_count = 0;
}

double golden_arg(const struct golden_case *golden, const char *key, double fallback)
{
	for (int i = 0; i < golden->arg_count; i++)
		if (!strcmp(golden->args[i].key, key))
			return golden->args[i].value;
	return fallback;
}

const struct npy *golden_optional(const struct golden_case *golden, const char *name)
{
	for (int i = 0; i < golden->array_count; i++)
		if (!strcmp(golden->arrays[i].name, name))
			return &golden->arrays[i].npy;
	return NULL;
}

const struct npy *golden_array(const struct golden_case *golden, const char *name, int rank,
			       const char *descr)
{
	const struct npy *npy = golden_optional(golden, name);

	if (npy && npy->rank == rank && (!descr || !strcmp(npy->descr, descr)))
		return npy;
	fprintf(stderr, "%s/%s.npy: missing, or not a %s array of rank %d\n", golden->dir, name,
		descr ? descr : "(any type)", rank);
	return NULL;
}
