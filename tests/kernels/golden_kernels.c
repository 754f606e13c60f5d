/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_kernels DIR...: each DIR is a case of tests/golden/kernels (its README is the format), or a folder
 * of cases. Prints a line for each case, version and output. Exits 0 when all pass, 1 when one fails, 2 when
 * one cannot be read.
 */
#include "golden_run.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

static const struct {
	const char *op;
	int (*run)(const struct golden_case *golden);
} runners[] = {{"mla_dense", golden_run_mla_dense},
	       {"mla_sparse", golden_run_mla_sparse},
	       {"msa", golden_run_msa},
	       {"msa_select", golden_run_msa_select}};

static int worse(int a, int b)
{
	return a > b ? a : b;
}

int golden_report(const struct golden_case *golden, const struct version *version, const char *what,
		  struct measure measure)
{
	const char *name = strrchr(golden->dir, '/');

	printf("%-24s %-10s %-12s %-10s error %-9.3g limit %-6.3g %s\n", name ? name + 1 : golden->dir,
	       golden->op, version->name, what, measure.error, measure.limit, measure.pass ? "ok" : "FAILED");
	return measure.pass ? GOLDEN_PASS : GOLDEN_FAIL;
}

const struct npy *golden_shaped(const struct golden_case *golden, const char *name, const char *descr,
				int rank, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
	const int64_t want[] = {d0, d1, d2, d3};
	const struct npy *npy = golden_array(golden, name, rank, descr);

	for (int i = 0; npy && i < rank; i++)
		if (npy->shape[i] > INT32_MAX || (want[i] >= 0 && npy->shape[i] != want[i])) {
			fprintf(stderr, "%s/%s.npy: dimension %d is %lld, not %lld\n", golden->dir, name, i,
				(long long)npy->shape[i], (long long)want[i]);
			return NULL;
		}
	return npy;
}

uint32_t golden_dtype(const struct npy *npy, uint32_t bytes_dtype)
{
	if (!strcmp(npy->descr, "<u2"))
		return KVK_BF16;
	if (!strcmp(npy->descr, "<f2"))
		return KVK_F16;
	if (!strcmp(npy->descr, "<f4"))
		return KVK_F32;
	return strcmp(npy->descr, "|u1") ? 0 : bytes_dtype;
}

void *golden_buffer(int64_t count, size_t element_bytes)
{
	void *buffer = calloc((size_t)count + 1, element_bytes);

	if (!buffer) {
		perror("golden_kernels");
		exit(GOLDEN_UNREADABLE);
	}
	return buffer;
}

static int run_case(const char *dir)
{
	struct golden_case golden;
	int ret = GOLDEN_UNREADABLE;

	if (golden_load(dir, &golden))
		return GOLDEN_UNREADABLE;
	for (size_t i = 0; i < sizeof(runners) / sizeof(*runners); i++)
		if (!strcmp(runners[i].op, golden.op)) {
			ret = runners[i].run(&golden);
			golden_free(&golden);
			return ret;
		}
	fprintf(stderr, "%s: unknown op '%s'\n", dir, golden.op);
	golden_free(&golden);
	return ret;
}

static bool is_case(const char *dir)
{
	char path[PATH_BYTES + sizeof("/args.txt")];

	snprintf(path, sizeof(path), "%s/args.txt", dir);
	return access(path, F_OK) == 0;
}

/* Every case below `dir`, by name. */
static int run_folder(const char *dir)
{
	struct dirent **entries;
	int count = scandir(dir, &entries, NULL, alphasort);
	int cases = 0;
	int ret = GOLDEN_PASS;

	for (int i = 0; i < count; i++) {
		char path[PATH_BYTES];

		snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
		free(entries[i]);
		if (!is_case(path))
			continue;
		ret = worse(ret, run_case(path));
		cases++;
	}
	if (count >= 0)
		free(entries);
	if (!cases)
		fprintf(stderr, "%s: no args.txt, neither here nor one level below\n", dir);
	return cases ? ret : GOLDEN_UNREADABLE;
}

int main(int argc, char **argv)
{
	int ret = GOLDEN_PASS;

	if (argc < 2) {
		fprintf(stderr, "usage: golden_kernels DIR...\n");
		return GOLDEN_UNREADABLE;
	}
	for (int i = 1; i < argc; i++)
		ret = worse(ret, is_case(argv[i]) ? run_case(argv[i]) : run_folder(argv[i]));
	return ret;
}
