/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools in a CUDA device's memory. Two ways to share it:
 *
 * ipc   One cuMemAlloc() and its 64-byte handle, which a client opens as a whole. The daemon keeps a
 * context, and every opener must be able to see it as a process. fd    At most KVD_CUDA_MAX_CHUNKS pieces of
 * cuMemCreate(), each with a descriptor that a client imports and maps. The daemon keeps no context, so a
 * device error of somebody else is not its end; and who holds a descriptor keeps the memory.
 *
 * `auto` takes fd where a piece can be created, exported and imported for a try, else ipc: what the device's
 * attributes promise is not what the driver then does everywhere.
 *
 * Every function that calls the driver may block for as long as it likes: populate(), destroy(), read() and
 * write() belong on the worker's thread (destroy() also after the worker's end). session_fd()
 * gives a descriptor that maps nothing: it is copied by fork() as the driver's own are, so that proved_gone()
 * says whether any process can still have these. That is needed for the device to be done with a session,
 * and not enough: descriptors close before what they stand for has ended (device_proof.h).
 */
#ifndef KVPOOL_DAEMON_DEVICE_CUDA_H
#define KVPOOL_DAEMON_DEVICE_CUDA_H

#include "device.h"

#define KVD_CUDA_MAX_CHUNKS KVW_MAX_CHUNKS
#define KVD_CUDA_UUID_BYTES 16
#define KVD_CUDA_HANDLE_BYTES 64
#define KVD_CUDA_WHY_BYTES 256
#define KVD_CUDA_PROBLEM_BYTES 640

extern const struct kvd_device_ops kvd_device_cuda;

/* How to get at a pool: what goes to clients, and into `status`. */
struct kvd_cuda_sharing {
	enum kvd_share share; /* never AUTO */
	const char *why;      /* this one; as long as the memory lives */
	int ordinal;          /* here; in a client another device may have it */
	uint8_t uuid[KVD_CUDA_UUID_BYTES];
	uint64_t bytes;
	/* ipc */
	uint8_t handle[KVD_CUDA_HANDLE_BYTES];
	uint64_t offset; /* of the pool in the allocation */
	/* fd: all chunks but the last have chunk_bytes */
	uint64_t chunk_bytes;
	uint32_t chunk_count;
	const int *fds; /* the memory's own, as long as it lives */
};

/* On any thread, once populate() has succeeded; before, -EAGAIN. No call of the driver. */
int kvd_cuda_sharing(const struct kvd_memory *memory, struct kvd_cuda_sharing *out);
/* The driver has said that this device answers nothing any more to this process. Any thread. */
bool kvd_cuda_lost(const struct kvd_memory *memory);

/* What a device is, for --check. */
struct kvd_cuda_device {
	int ordinal;
	uint64_t free_bytes;
	uint64_t total_bytes;
	enum kvd_share share; /* that a pool would get */
	char why[KVD_CUDA_WHY_BYTES];
};
/*
 * Everything that populate() does but for the memory: finds and checks the device, chooses how to share, and
 * asks for its room. Nothing is left; in place of populate(), on the same thread.
 */
int kvd_cuda_try(struct kvd_memory *memory, struct kvd_cuda_device *out);
/*
 * One short call of the driver, to learn of a lost device: the others are all made at the beginning. On the
 * worker's thread, after populate().
 */
int kvd_cuda_look(struct kvd_memory *memory);
/* The last failure, a sentence; "" without one. Not while the worker is at it. */
const char *kvd_cuda_problem(const struct kvd_memory *memory);

/* -EINVAL for what is not one of the forms in struct kvd_memory_params. */
int kvd_cuda_check_name(const char *device);

#endif
