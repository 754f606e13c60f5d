/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the CUDA device share. All of it runs on one thread at a time, but for `lost`. */
#ifndef KVPOOL_DAEMON_DEVICE_CUDA_INTERNAL_H
#define KVPOOL_DAEMON_DEVICE_CUDA_INTERNAL_H

#include "device_cuda.h"

#include "ipc/cuda_driver.h"

#define KVD_CUDA_PREFIX "cuda:"
#define KVD_CUDA_MAX_DEVICE_NAME 80

struct kvd_cuda_chunk {
	uint64_t handle;
	uint64_t bytes;
};

struct kvd_memory {
	char name[KVW_MAX_NAME_BYTES + 1];
	char device[KVD_CUDA_MAX_DEVICE_NAME];
	enum kvd_share wanted;
	bool allow_mps;
	uint64_t bytes;
	_Atomic bool populated; /* also read by the loop, which may ask what it is while it is made */
	_Atomic bool lost;
	int lock_fd; /* only for its lock bytes */
	char problem[KVD_CUDA_PROBLEM_BYTES];
	/* From here on what populate() made. */
	struct kvw_cuda *cuda;
	struct kvw_cuda_error error; /* of the last failed call */
	int ordinal;
	struct kvw_cuda_uuid uuid;
	enum kvd_share share;
	char why[KVD_CUDA_WHY_BYTES];
	struct kvw_cuda_context *context; /* ipc: for life; fd: while it is entered */
	uint64_t pointer;
	struct kvw_cuda_ipc_handle handle;
	uint64_t chunk_bytes;
	uint32_t chunk_count;
	struct kvd_cuda_chunk chunks[KVD_CUDA_MAX_CHUNKS];
	int fds[KVD_CUDA_MAX_CHUNKS];
};

/* Calls, remembers a lost device, and logs what failed; the value is 0 or a negative errno. */
#define KVD_CUDA(memory, name, ...)                                                                          \
	kvd_cuda_note((memory), KVW_CUDA((memory)->cuda, &(memory)->error, name, __VA_ARGS__))
int kvd_cuda_note(struct kvd_memory *memory, int ret);
/* A line in the log, with the pool's name before it, that stays as the memory's problem. */
void kvd_cuda_complain(struct kvd_memory *memory, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The same without a line in the log, where a failure is an answer. */
#define KVD_CUDA_TRY(memory, name, ...) KVW_CUDA((memory)->cuda, &(memory)->error, name, __VA_ARGS__)

/* device_cuda_find.c: the driver and the device, checked; kvw_cuda_close() ends it. Logs. */
int kvd_cuda_find(struct kvd_memory *memory);
/* 0 where the driver doesn't know the attribute yet. No line in the log. */
int kvd_cuda_attribute(struct kvd_memory *memory, unsigned attribute, int *out_value);

/* device_cuda_context.c: the primary context, current on this thread until it is left. */
int kvd_cuda_enter(struct kvd_memory *memory);
void kvd_cuda_leave(struct kvd_memory *memory);
/* -ENOMEM, with the numbers in the log, when the device has too little. In a context. */
int kvd_cuda_check_room(struct kvd_memory *memory);

/* device_cuda_chunks.c */
/* Fills memory->share and memory->why. */
int kvd_cuda_choose_share(struct kvd_memory *memory);
/*
 * Creates, exports and zeroes, in a context; *progress counts bytes. What was made until a failure stays for
 * kvd_cuda_drop_chunks().
 */
int kvd_cuda_make_chunks(struct kvd_memory *memory, _Atomic uint64_t *progress, const _Atomic int *cancel);
void kvd_cuda_drop_chunks(struct kvd_memory *memory);
/* Maps one chunk for a moment, in a context. */
int kvd_cuda_map_chunk(struct kvd_memory *memory, uint32_t chunk, uint64_t *out_pointer);
void kvd_cuda_unmap_chunk(struct kvd_memory *memory, uint32_t chunk, uint64_t pointer);

#endif
