/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Format: the bytes 93 'NUMPY' 01 00, a 16-bit header length, a Python dictionary literal with the keys
 * 'descr', 'fortran_order' and 'shape', then the elements.
 */
#include "npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "\x93NUMPY\x01"
#define PREFIX_BYTES 10
#define MAX_HEADER_BYTES 4096

static int fail(const char *path, const char *what)
{
	fprintf(stderr, "%s: %s\n", path, what);
	return -EINVAL;
}

static int read_header(FILE *file, const char *path, char header[MAX_HEADER_BYTES + 1])
{
	unsigned char prefix[PREFIX_BYTES];
	size_t bytes;

	if (fread(prefix, 1, sizeof(prefix), file) != sizeof(prefix) || memcmp(prefix, MAGIC, 7))
		return fail(path, "not a version 1.0 .npy file");
	bytes = prefix[8] | (size_t)prefix[9] << 8;
	if (bytes > MAX_HEADER_BYTES)
		return fail(path, "header longer than 4096 bytes");
	if (fread(header, 1, bytes, file) != bytes)
		return fail(path, "file ends inside the header");
	header[bytes] = 0;
	return 0;
}

static size_t type_bytes(const char *descr)
{
	static const struct {
		const char *descr;
		size_t bytes;
	} types[] = {{"|u1", 1}, {"<u2", 2}, {"<f2", 2}, {"<f4", 4}, {"<i4", 4}, {"<f8", 8}, {"<i8", 8}};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (!strcmp(descr, types[i].descr))
			return types[i].bytes;
	return 0;
}

static int parse_type(const char *header, struct npy *npy)
{
	const char *at = strstr(header, "'descr': '");

	if (!at || sscanf(at, "'descr': '%7[^']'", npy->descr) != 1)
		return -EINVAL;
	npy->element_bytes = type_bytes(npy->descr);
	return npy->element_bytes && strstr(header, "'fortran_order': False") ? 0 : -EINVAL;
}

/* "(3, 4)", "(3,)" or "()". */
static int parse_shape(const char *header, struct npy *npy)
{
	const char *at = strstr(header, "'shape': (");
	char *end;

	if (!at)
		return -EINVAL;
	at += strlen("'shape': (");
	npy->count = 1;
	for (npy->rank = 0; *at != ')'; npy->rank++) {
		if (npy->rank == NPY_MAX_RANK)
			return -EINVAL;
		npy->shape[npy->rank] = strtoll(at, &end, 10);
		if (end == at || npy->shape[npy->rank] < 0 ||
		    __builtin_mul_overflow(npy->count, npy->shape[npy->rank], &npy->count))
			return -EINVAL;
		at = end + strspn(end, ", ");
	}
	return 0;
}

static int read_elements(FILE *file, const char *path, struct npy *npy)
{
	size_t bytes;

	if (__builtin_mul_overflow((size_t)npy->count, npy->element_bytes, &bytes) || bytes > SIZE_MAX / 2)
		return fail(path, "shape too large");
	npy->data = aligned_alloc(64, bytes / 64 * 64 + 64);
	if (!npy->data)
		return fail(path, "out of memory");
	if (fread(npy->data, 1, bytes, file) == bytes && fgetc(file) == EOF)
		return 0;
	npy_free(npy);
	return fail(path, "size of the file and shape disagree");
}

int npy_read(const char *path, struct npy *out)
{
	char header[MAX_HEADER_BYTES + 1];
	struct npy npy = {.data = NULL};
	FILE *file = fopen(path, "rbe");
	int ret;

	if (!file)
		return errno == ENOENT ? -ENOENT : fail(path, strerror(errno));
	ret = read_header(file, path, header);
	if (!ret && (parse_type(header, &npy) || parse_shape(header, &npy)))
		ret = fail(path, "unknown element type, order or shape in the header");
	if (!ret)
		ret = read_elements(file, path, &npy);
	fclose(file);
	if (!ret)
		*out = npy;
	return ret;
}

void npy_free(struct npy *npy)
{
	free(npy->data);
	npy->data = NULL;
}
