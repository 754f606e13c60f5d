/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain main() for a fuzz target: runs every file of the given files and folders once. So the corpus is a
 * test in every build, under every sanitizer, with any compiler.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

/* Fuzz inputs are short; a longer file is not one. */
#define MAX_INPUT_BYTES (1u << 20)

/* The input lies in memory of exactly its length, so that a sanitizer sees a read past its end. */
static int run_file(const char *path, long bytes)
{
	size_t length = (size_t)bytes;
	uint8_t *input = malloc(length ? length : 1);
	FILE *file = fopen(path, "rbe");
	int ret = -1;

	if (file && input && fread(input, 1, length, file) == length) {
		fprintf(stderr, "%s\n", path);
		LLVMFuzzerTestOneInput(input, length);
		ret = 0;
	} else {
		perror(path);
	}
	if (file)
		fclose(file);
	free(input);
	return ret;
}

static int run_path(const char *path, unsigned *runs);

static int run_folder(const char *path, unsigned *runs)
{
	struct dirent **entries;
	int count = scandir(path, &entries, NULL, alphasort);
	int failed = count < 0 ? -1 : 0;
	int i;

	for (i = 0; i < count; i++) {
		char *inner = NULL;

		if (entries[i]->d_name[0] != '.') {
			if (asprintf(&inner, "%s/%s", path, entries[i]->d_name) < 0)
				abort();
			failed |= run_path(inner, runs);
			free(inner);
		}
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
	return failed;
}

static int run_path(const char *path, unsigned *runs)
{
	struct stat status;

	if (stat(path, &status)) {
		perror(path);
		return -1;
	}
	if (S_ISDIR(status.st_mode))
		return run_folder(path, runs);
	if (status.st_size > MAX_INPUT_BYTES) {
		fprintf(stderr, "%s: %lld bytes, at most %u are replayed\n", path, (long long)status.st_size,
			MAX_INPUT_BYTES);
		return -1;
	}
	++*runs;
	return run_file(path, (long)status.st_size);
}

int main(int argc, char **argv)
{
	unsigned runs = 0;
	int failed = 0;
	int i;

	for (i = 1; i < argc; i++)
		failed |= run_path(argv[i], &runs);
	fprintf(stderr, "%u inputs\n", runs);
	/* Nothing replayed is a mistake in the path, not a success. */
	return failed || runs == 0;
}
