/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's operations. create() only notes what is wanted: the driver is first called by populate(), on
 * the worker's thread, because starting it takes seconds and can hang.
 */
#include "device_cuda_internal.h"

#include "lock_byte.h"
#include "log.h"
#include "machine.h"
#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void kvd_cuda_complain(struct kvd_memory *memory, const char *format, ...)
{
	char problem[KVD_CUDA_PROBLEM_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(problem, sizeof(problem), format, args);
	va_end(args);
	/* One that is tried again and again says the same. */
	if (!strcmp(problem, memory->problem))
		return;
	memcpy(memory->problem, problem, sizeof(problem));
	kvd_log_error("pool '%s': %s", memory->name, memory->problem);
}

int kvd_cuda_note(struct kvd_memory *memory, int ret)
{
	if (ret >= 0)
		return ret;
	if (ret == -ENOTRECOVERABLE)
		memory->lost = true;
	kvd_cuda_complain(memory, "device '%s': %s", memory->device, memory->error.text);
	return ret;
}

static int make_lock_file(struct kvd_memory *memory)
{
	int ret = kvd_memfd_create("kvpool-lock", 0, 4096, &memory->lock_fd);

	if (!ret) {
		ret = kvd_memfd_seal(memory->lock_fd, F_SEAL_WRITE);
		if (ret < 0)
			close(memory->lock_fd);
	}
	if (ret < 0)
		kvd_log_error("pool '%s': no file for its locks: %s", memory->name, strerror(-ret));
	return ret;
}

static int create(const struct kvd_memory_params *params, struct kvd_memory **out)
{
	struct kvd_memory *memory;
	int ret;

	if (!params->bytes || params->bytes > INT64_MAX / 2)
		return -EINVAL;
	if (kvd_cuda_check_name(params->device)) {
		kvd_log_error("pool '%s': '%s' is not a device; use 'cuda:0', 'cuda:GPU-<uuid>' or "
			      "'cuda:<bus id>' as nvidia-smi shows it",
			      params->name, params->device ? params->device : "");
		return -EINVAL;
	}
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return -ENOMEM;
	snprintf(memory->name, sizeof(memory->name), "%s", params->name);
	snprintf(memory->device, sizeof(memory->device), "%s", params->device);
	memory->wanted = params->share;
	memory->allow_mps = params->allow_mps;
	memory->bytes = params->bytes;
	ret = make_lock_file(memory);
	if (ret < 0) {
		free(memory);
		return ret;
	}
	*out = memory;
	return 0;
}

/* In the context. */
static void drop_allocation(struct kvd_memory *memory)
{
	if (memory->pointer)
		(void)KVW_CUDA(memory->cuda, NULL, cuMemFree, memory->pointer);
	memory->pointer = 0;
}

/* The driver is closed; descriptors and memory that others hold stay theirs. */
static void release(struct kvd_memory *memory)
{
	if (!memory->cuda)
		return;
	if (memory->pointer && !kvd_cuda_enter(memory)) {
		drop_allocation(memory);
		kvd_cuda_leave(memory);
	} else if (memory->context) {
		/* The allocation goes with the context's last user. */
		(void)KVW_CUDA(memory->cuda, NULL, cuDevicePrimaryCtxRelease, memory->ordinal);
		memory->context = NULL;
	}
	kvd_cuda_drop_chunks(memory);
	kvw_cuda_close(memory->cuda);
	memory->cuda = NULL;
	memory->populated = false;
}

static void destroy(struct kvd_memory *memory)
{
	if (!memory)
		return;
	release(memory);
	close(memory->lock_fd);
	free(memory);
}

static const char *backing(const struct kvd_memory *memory)
{
	if (!memory->populated)
		return "cuda";
	return memory->share == KVD_SHARE_FD ? "cuda-fd" : "cuda-ipc";
}

/*
 * Whole granules of 2 MiB: what the driver puts beside a smaller allocation could be read by whoever opens
 * the handle.
 */
static int make_allocation(struct kvd_memory *memory, _Atomic uint64_t *progress)
{
	int ret;

	memory->bytes = (memory->bytes + KVD_HUGE_BYTES - 1) / KVD_HUGE_BYTES * KVD_HUGE_BYTES;
	ret = KVD_CUDA(memory, cuMemAlloc, &memory->pointer, memory->bytes);
	if (ret < 0)
		return ret;
	ret = KVD_CUDA(memory, cuMemsetD8Async, memory->pointer, 0, memory->bytes, NULL);
	if (!ret)
		ret = KVD_CUDA(memory, cuStreamSynchronize, NULL);
	if (!ret)
		ret = KVD_CUDA(memory, cuIpcGetMemHandle, &memory->handle, memory->pointer);
	if (!ret)
		*progress = memory->bytes;
	return ret;
}

static int make_in_context(struct kvd_memory *memory, _Atomic uint64_t *progress, const _Atomic int *cancel)
{
	int ret = kvd_cuda_check_room(memory);

	if (!ret)
		ret = memory->share == KVD_SHARE_FD ? kvd_cuda_make_chunks(memory, progress, cancel)
						    : make_allocation(memory, progress);
	if (ret < 0)
		drop_allocation(memory);
	return ret;
}

static int make(struct kvd_memory *memory, _Atomic uint64_t *progress, const _Atomic int *cancel)
{
	int ret = kvd_cuda_find(memory);

	if (!ret)
		ret = kvd_cuda_choose_share(memory);
	if (!ret)
		ret = kvd_cuda_enter(memory);
	if (ret < 0)
		return ret;
	ret = make_in_context(memory, progress, cancel);
	kvd_cuda_leave(memory);
	return ret;
}

static int populate(struct kvd_memory *memory, _Atomic uint64_t *progress, const _Atomic int *cancel)
{
	int ret;

	if (memory->populated) {
		*progress = memory->bytes;
		return 0;
	}
	if (*cancel)
		return -ECANCELED;
	ret = make(memory, progress, cancel);
	if (ret < 0) {
		*progress = 0;
		release(memory);
		return ret;
	}
	memory->populated = true;
	kvd_log_info("pool '%s': %" PRIu64 " bytes on device '%s', shared by %s: %s", memory->name,
		     memory->bytes, memory->device, memory->share == KVD_SHARE_FD ? "fd" : "ipc",
		     memory->why);
	return 0;
}

static int session_fd(struct kvd_memory *memory, uint64_t lock_byte, int *out_fd)
{
	return kvd_lock_byte_open(memory->lock_fd, lock_byte, out_fd);
}

static int proved_gone(struct kvd_memory *memory, uint64_t lock_byte)
{
	return kvd_lock_byte_free(memory->lock_fd, lock_byte);
}

/* A copy between the host and the device at `pointer`; one of the two is written. */
static int copy(struct kvd_memory *memory, uint64_t pointer, void *out, const void *bytes, size_t length)
{
	int ret = out ? KVD_CUDA(memory, cuMemcpyDtoHAsync, out, pointer, length, NULL)
		      : KVD_CUDA(memory, cuMemcpyHtoDAsync, pointer, bytes, length, NULL);

	return ret ? ret : KVD_CUDA(memory, cuStreamSynchronize, NULL);
}

static int copy_chunks(struct kvd_memory *memory, uint64_t offset, char *out, const char *bytes,
		       size_t length)
{
	int ret = 0;

	while (length && !ret) {
		uint32_t chunk = (uint32_t)(offset / memory->chunk_bytes);
		uint64_t inside = offset % memory->chunk_bytes;
		uint64_t rest = memory->chunks[chunk].bytes - inside;
		size_t part = length < rest ? length : (size_t)rest;
		uint64_t pointer;

		ret = kvd_cuda_map_chunk(memory, chunk, &pointer);
		if (ret < 0)
			return ret;
		ret = copy(memory, pointer + inside, out, bytes, part);
		kvd_cuda_unmap_chunk(memory, chunk, pointer);
		out = out ? out + part : NULL;
		bytes = bytes ? bytes + part : NULL;
		offset += part;
		length -= part;
	}
	return ret;
}

static int move(struct kvd_memory *memory, uint64_t offset, void *out, const void *bytes, size_t length)
{
	int ret;

	if (offset > memory->bytes || length > memory->bytes - offset)
		return -ERANGE;
	if (!length)
		return 0;
	if (!memory->populated || kvd_cuda_enter(memory))
		return -EIO;
	ret = memory->share == KVD_SHARE_FD ? copy_chunks(memory, offset, out, bytes, length)
					    : copy(memory, memory->pointer + offset, out, bytes, length);
	kvd_cuda_leave(memory);
	return ret ? -EIO : 0;
}

static int read_bytes(struct kvd_memory *memory, uint64_t offset, void *out, size_t length)
{
	return move(memory, offset, out, NULL, length);
}

static int write_bytes(struct kvd_memory *memory, uint64_t offset, const void *bytes, size_t length)
{
	return move(memory, offset, NULL, bytes, length);
}

static uint64_t bytes_of(const struct kvd_memory *memory)
{
	return memory->bytes;
}

int kvd_cuda_sharing(const struct kvd_memory *memory, struct kvd_cuda_sharing *out)
{
	if (!memory->populated)
		return -EAGAIN;
	*out = (struct kvd_cuda_sharing){
		.share = memory->share,
		.why = memory->why,
		.ordinal = memory->ordinal,
		.bytes = memory->bytes,
		.chunk_bytes = memory->chunk_bytes,
		.chunk_count = memory->chunk_count,
		.fds = memory->fds,
	};
	memcpy(out->uuid, memory->uuid.bytes, sizeof(out->uuid));
	memcpy(out->handle, memory->handle.bytes, sizeof(out->handle));
	return 0;
}

static int try_in_context(struct kvd_memory *memory, struct kvd_cuda_device *out)
{
	size_t free_bytes = 0;
	size_t total_bytes = 0;
	int ret = KVD_CUDA(memory, cuMemGetInfo, &free_bytes, &total_bytes);

	out->free_bytes = free_bytes;
	out->total_bytes = total_bytes;
	return ret;
}

int kvd_cuda_try(struct kvd_memory *memory, struct kvd_cuda_device *out)
{
	int ret = kvd_cuda_find(memory);

	if (!ret)
		ret = kvd_cuda_choose_share(memory);
	if (!ret)
		ret = kvd_cuda_enter(memory);
	if (!ret) {
		ret = try_in_context(memory, out);
		kvd_cuda_leave(memory);
	}
	out->ordinal = memory->ordinal;
	out->share = memory->share;
	snprintf(out->why, sizeof(out->why), "%s", memory->why);
	release(memory);
	return ret;
}

/*
 * Where there is no context, none is made for it: that takes long and costs device memory. A descriptor of the pool's memory comes from the kernel's
 * driver each time, where a device's name and UUID may be told from this process's memory for as long as it lives.
 */
static int look_without_context(struct kvd_memory *memory)
{
	int fd = -1;
	int ret = KVD_CUDA(memory, cuMemExportToShareableHandle, &fd, memory->chunks[0].handle,
			   KVW_CUDA_HANDLE_FD, 0);

	if (fd >= 0)
		close(fd);
	return ret;
}

int kvd_cuda_look(struct kvd_memory *memory)
{
	int ret;

	if (memory->share == KVD_SHARE_FD)
		return look_without_context(memory);
	ret = kvd_cuda_enter(memory);
	if (ret < 0)
		return ret;
	ret = KVD_CUDA(memory, cuStreamSynchronize, NULL);
	kvd_cuda_leave(memory);
	return ret;
}

const char *kvd_cuda_problem(const struct kvd_memory *memory)
{
	return memory->problem;
}

bool kvd_cuda_lost(const struct kvd_memory *memory)
{
	return memory->lost;
}

const struct kvd_device_ops kvd_device_cuda = {
	.name = "cuda",
	.create = create,
	.destroy = destroy,
	.backing = backing,
	.populate = populate,
	.session_fd = session_fd,
	.proved_gone = proved_gone,
	.read = read_bytes,
	.write = write_bytes,
	.bytes = bytes_of,
};
