/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of NumPy's .npy files, version 1.0, C order, little-endian: what the golden cases are made of. */
#ifndef KVPOOL_TEST_NPY_H
#define KVPOOL_TEST_NPY_H

#include <stddef.h>
#include <stdint.h>

#define NPY_MAX_RANK 6

struct npy {
	char descr[8]; /* NumPy's name of the element type: "<f4", "<i4", "<u2", "|u1", "<f2" */
	int rank;
	int64_t shape[NPY_MAX_RANK];
	int64_t count; /* elements */
	size_t element_bytes;
	void *data; /* owned, 64-byte aligned, followed by no readable byte that counts */
};

/*
 * 0; -ENOENT when there is no such file; -EINVAL with a line on stderr for anything that is not such a file.
 */
int npy_read(const char *path, struct npy *out);
void npy_free(struct npy *npy);

#endif
