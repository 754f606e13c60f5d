/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/simt/device.h on a real device. Tests hand out host memory; at a launch each block that an argument points into
 * gets device memory of its very size, so that compute-sanitizer sees the first byte past it, is copied there, and is
 * copied back when the kernel has ended. Arguments are one struct a kernel: a word of it that points into a block is a
 * pointer.
 *
 * The device is opened before main(): without one the program ends as skipped.
 */
#include "device.h"

#include "blocks.h"
#include "real_device.h"

#include "cuda/image.h"
#include "libclient/launch_cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kvpool/kvpool.h>

#define MAX_MIRRORS 64
#define PAGE_BYTES 4096u

struct mirror {
	struct gpu_block block;
	unsigned char *sent; /* as it was sent; NULL for a sparse block */
	uint64_t memory;
};

struct mirrors {
	size_t count;
	struct mirror mirror[MAX_MIRRORS];
};

static struct kvw_cuda *cuda;
static struct kvw_cuda_error error;
static struct kvw_cuda_stream *stream;
static struct kvc_cuda_launcher launcher;

#define CALL(name, ...) KVW_CUDA(cuda, &error, name, __VA_ARGS__)

static void __attribute__((constructor)) open_device(void)
{
	struct kvw_cuda_context *context;
	struct kvc_cuda_kernels *kernels;
	size_t bytes;

	cuda = gpu_open_or_skip();
	if (CALL(cuDevicePrimaryCtxRetain, &context, 0) || CALL(cuCtxPushCurrent, context) ||
	    CALL(cuStreamCreate, &stream, KVW_CUDA_STREAM_NON_BLOCKING))
		gpu_give_up(error.text);
	if (kvc_cuda_kernels_load(cuda, kvk_cuda_image(&bytes), &kernels))
		gpu_give_up(kvp_last_error());
	kvc_cuda_launcher_init(&launcher, kernels, stream);
}

/* ------------------------------------------------------------------ copies */

/* Whether the page at `offset` was ever written; only those of a sparse block travel. */
static bool is_there(const struct gpu_block *block, size_t offset)
{
	unsigned char in_memory;

	return !mincore(block->base + offset, 1, &in_memory) && in_memory & 1;
}

static int copy_pages(const struct mirror *mirror, bool to_device)
{
	const struct gpu_block *block = &mirror->block;
	int ret = 0;

	for (size_t at = 0; at < block->bytes && !ret; at += PAGE_BYTES) {
		const size_t bytes = block->bytes - at < PAGE_BYTES ? block->bytes - at : PAGE_BYTES;

		if (is_there(block, at))
			ret = to_device ? CALL(cuMemcpyHtoDAsync, mirror->memory + at, block->base + at,
					       bytes, stream)
					: CALL(cuMemcpyDtoHAsync, block->base + at, mirror->memory + at,
					       bytes, stream);
	}
	return ret;
}

static int send(struct mirror *mirror)
{
	const struct gpu_block *block = &mirror->block;
	int ret = CALL(cuMemAlloc, &mirror->memory, block->bytes);

	if (ret)
		return ret;
	if (block->sparse)
		return copy_pages(mirror, true);
	mirror->sent = malloc(block->bytes);
	if (!mirror->sent)
		return -ENOMEM;
	memcpy(mirror->sent, block->base, block->bytes);
	return CALL(cuMemcpyHtoDAsync, mirror->memory, mirror->sent, block->bytes, stream);
}

/* Only what the kernel changed: the stack's frames are in use, and inputs may be read-only. */
static int fetch(const struct mirror *mirror)
{
	unsigned char *base = mirror->block.base;
	unsigned char *now;
	int ret;

	if (mirror->block.sparse)
		return copy_pages(mirror, false) || CALL(cuStreamSynchronize, stream);
	now = malloc(mirror->block.bytes);
	if (!now)
		return -ENOMEM;
	ret = CALL(cuMemcpyDtoHAsync, now, mirror->memory, mirror->block.bytes, stream);
	ret = ret ? ret : CALL(cuStreamSynchronize, stream);
	for (size_t i = 0; i < mirror->block.bytes && !ret; i++)
		if (now[i] != mirror->sent[i])
			base[i] = now[i];
	free(now);
	return ret;
}

static void drop(const struct mirrors *mirrors)
{
	for (size_t i = 0; i < mirrors->count; i++) {
		if (mirrors->mirror[i].memory)
			(void)CALL(cuMemFree, mirrors->mirror[i].memory);
		free(mirrors->mirror[i].sent);
	}
}

/* ------------------------------------------------------------------ launch */

static int mirror_of(struct mirrors *mirrors, const struct gpu_block *block, struct mirror **out)
{
	struct mirror *mirror;

	for (size_t i = 0; i < mirrors->count; i++)
		if (mirrors->mirror[i].block.base == block->base) {
			*out = &mirrors->mirror[i];
			return 0;
		}
	if (mirrors->count == MAX_MIRRORS)
		return -ENOSPC;
	mirror = &mirrors->mirror[mirrors->count++];
	mirror->block = *block;
	*out = mirror;
	return send(mirror);
}

/* Words that point into a block of the host's point into its mirror then. */
static int translate(struct mirrors *mirrors, void *args, size_t bytes, void *frame)
{
	uint64_t *words = args;
	int ret = 0;

	for (size_t i = 0; i < bytes / sizeof(*words) && !ret; i++) {
		struct gpu_block block;
		struct mirror *mirror;

		if (!gpu_block_of(words[i], frame, &block) || !block.bytes)
			continue;
		ret = mirror_of(mirrors, &block, &mirror);
		if (!ret)
			words[i] = mirror->memory + (words[i] - (uint64_t)(uintptr_t)block.base);
	}
	return ret;
}

static int run(const struct kvk_cuda_launch *launch, struct mirrors *mirrors, void *args, void *frame)
{
	struct kvk_cuda_launch here = *launch;
	int ret = translate(mirrors, args, launch->args_bytes, frame);

	if (ret)
		return ret;
	here.args = args;
	ret = launcher.device.launch(launcher.device.context, &here);
	if (ret)
		snprintf(error.text, sizeof(error.text), "%s", kvp_last_error());
	for (size_t i = 0; i < mirrors->count && !ret; i++)
		ret = fetch(&mirrors->mirror[i]);
	return ret;
}

uint32_t simt_device_flags(void)
{
	return launcher.device.flags;
}

int simt_device_launch(void *context, const struct kvk_cuda_launch *launch)
{
	struct simt_device *device = context;
	struct mirrors mirrors = {0};
	void *args = malloc(launch->args_bytes);
	int ret = -ENOMEM;

	device->launches++;
	if (args) {
		memcpy(args, launch->args, launch->args_bytes);
		ret = run(launch, &mirrors, args, __builtin_frame_address(0));
	}
	if (ret)
		fprintf(stderr, "%s: %s\n", launch->kernel, error.text);
	drop(&mirrors);
	free(args);
	return ret ? -EFAULT : 0;
}
