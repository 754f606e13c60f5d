/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a pool's bytes are. `host` is a memfd; other devices come behind the same table. Nothing above it knows which one runs; one conformance
 * suite holds all of them to this contract.
 */
#ifndef KVPOOL_DAEMON_DEVICE_H
#define KVPOOL_DAEMON_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"

struct kvd_memory; /* one shard of one pool */

struct kvd_memory_params {
	const char *name; /* of the pool, for messages */
	uint64_t bytes;
	enum kvd_pages pages;
	/* CUDA devices only, as in struct kvd_pool_config. */
	const char *device;
	enum kvd_share share;
	bool allow_mps;
};

struct kvd_device_ops {
	const char *name;
	/* Creates, seals and sizes; touches nothing. AUTO pages: hugetlb, else THP, else 4 KiB, and the log says why. */
	int (*create)(const struct kvd_memory_params *params, struct kvd_memory **out);
	void (*destroy)(struct kvd_memory *memory);
	/* "hugetlb", "thp" or "4k"; "cuda", "cuda-fd" or "cuda-ipc". */
	const char *(*backing)(const struct kvd_memory *memory);
	/*
	 * Makes every page present, in parallel, reporting bytes done through *progress. On the worker's thread. -ENOMEM when the machine
	 * has too little; stops early (-ECANCELED) when *cancel becomes 1.
	 */
	int (*populate)(struct kvd_memory *memory, _Atomic uint64_t *progress, const _Atomic int *cancel);
	/*
	 * A descriptor for one session: an open file description of its own, with the OFD lock on byte `lock_byte`. The caller sends it
	 * and closes its copy. From then on kvd proved_gone() is 0 until every descriptor and mapping made from it is gone, in every process.
	 */
	int (*session_fd)(struct kvd_memory *memory, uint64_t lock_byte, int *out_fd);
	/* 1: nothing of that session is left; 0: something is; negative errno. */
	int (*proved_gone)(struct kvd_memory *memory, uint64_t lock_byte);
	/* Bytes by system call, never by a mapping (a client can punch holes). All or -EIO/-ERANGE. */
	int (*read)(struct kvd_memory *memory, uint64_t offset, void *out, size_t length);
	int (*write)(struct kvd_memory *memory, uint64_t offset, const void *bytes, size_t length);
	uint64_t (*bytes)(const struct kvd_memory *memory);
};

extern const struct kvd_device_ops kvd_device_host;

#endif
