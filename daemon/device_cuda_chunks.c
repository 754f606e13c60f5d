/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory as pieces with descriptors: whether this driver can, how large they are, making and dropping them.
 */
#include "device_cuda_internal.h"

#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* Fewer and larger pieces are mapped sooner; smaller ones waste less at the end. */
#define MIN_CHUNK_BYTES (UINT64_C(64) << 20)

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static int properties_of(struct kvd_memory *memory, struct kvw_cuda_allocation *out)
{
	int rdma;
	int ret = kvd_cuda_attribute(memory, KVW_CUDA_ATTR_VMM_RDMA, &rdma);

	if (ret < 0)
		return ret;
	*out = (struct kvw_cuda_allocation){
		.type = KVW_CUDA_ALLOCATION_PINNED,
		.handle_types = KVW_CUDA_HANDLE_FD,
		.location = {KVW_CUDA_LOCATION_DEVICE, memory->ordinal},
		.rdma_capable = rdma != 0,
	};
	return 0;
}

static int granularity(struct kvd_memory *memory, const struct kvw_cuda_allocation *properties,
		       size_t *out_bytes)
{
	return KVD_CUDA_TRY(memory, cuMemGetAllocationGranularity, out_bytes, properties,
			    KVW_CUDA_GRANULARITY_RECOMMENDED);
}

/* One piece through the whole way that clients will go, but for the mapping. */
static int probe(struct kvd_memory *memory)
{
	struct kvw_cuda_allocation properties;
	uint64_t imported;
	uint64_t handle;
	size_t bytes;
	int fd = -1;
	int ret = properties_of(memory, &properties);

	if (!ret)
		ret = granularity(memory, &properties, &bytes);
	if (!ret)
		ret = KVD_CUDA_TRY(memory, cuMemCreate, &handle, bytes, &properties, 0);
	if (ret < 0)
		return ret;
	ret = KVD_CUDA_TRY(memory, cuMemExportToShareableHandle, &fd, handle, KVW_CUDA_HANDLE_FD, 0);
	if (!ret)
		ret = KVD_CUDA_TRY(memory, cuMemImportFromShareableHandle, &imported, (void *)(intptr_t)fd,
				   KVW_CUDA_HANDLE_FD);
	if (!ret)
		ret = KVD_CUDA_TRY(memory, cuMemRelease, imported);
	if (fd >= 0)
		close(fd);
	/* What failed first stays in memory->error. */
	(void)KVW_CUDA(memory->cuda, NULL, cuMemRelease, handle);
	return ret;
}

/* 0, or why descriptors can't be had, in memory->why. */
static int try_fd(struct kvd_memory *memory)
{
	int apart = 0;
	int descriptors = 0;
	int ret = kvd_cuda_attribute(memory, KVW_CUDA_ATTR_VMM, &apart);

	if (!ret)
		ret = kvd_cuda_attribute(memory, KVW_CUDA_ATTR_VMM_FD, &descriptors);
	if (!ret && !(apart && descriptors)) {
		snprintf(memory->why, sizeof(memory->why), "the device has no memory with descriptors");
		return -EOPNOTSUPP;
	}
	if (!ret)
		ret = probe(memory);
	if (ret == -ENOTRECOVERABLE)
		return kvd_cuda_note(memory, ret);
	if (ret < 0)
		snprintf(memory->why, sizeof(memory->why), "a try with a descriptor failed: %.200s",
			 memory->error.text);
	return ret;
}

int kvd_cuda_choose_share(struct kvd_memory *memory)
{
	int ret = memory->wanted == KVD_SHARE_IPC ? -EOPNOTSUPP : try_fd(memory);

	if (ret == -ENOTRECOVERABLE)
		return ret;
	memory->share = ret ? KVD_SHARE_IPC : KVD_SHARE_FD;
	if (memory->wanted == KVD_SHARE_FD && ret) {
		kvd_cuda_complain(memory,
				  "'share = fd' is not possible on device '%s': %s; set 'share = ipc'",
				  memory->device, memory->why);
		return ret;
	}
	if (memory->wanted != KVD_SHARE_AUTO)
		snprintf(memory->why, sizeof(memory->why), "configured");
	else if (!ret)
		snprintf(memory->why, sizeof(memory->why),
			 "a piece of memory was created, exported and imported");
	return 0;
}

/* Equal pieces of whole granules, as many as the limit allows; the last may be shorter. */
static int plan(struct kvd_memory *memory, const struct kvw_cuda_allocation *properties)
{
	size_t granule;
	uint64_t bytes;
	int ret = kvd_cuda_note(memory, granularity(memory, properties, &granule));

	if (ret < 0)
		return ret;
	memory->bytes = round_up(memory->bytes, granule);
	bytes = round_up(memory->bytes, KVD_CUDA_MAX_CHUNKS) / KVD_CUDA_MAX_CHUNKS;
	if (bytes < MIN_CHUNK_BYTES)
		bytes = MIN_CHUNK_BYTES;
	memory->chunk_bytes = round_up(bytes, granule);
	if (memory->chunk_bytes > memory->bytes)
		memory->chunk_bytes = memory->bytes;
	return 0;
}

int kvd_cuda_map_chunk(struct kvd_memory *memory, uint32_t chunk, uint64_t *out_pointer)
{
	const struct kvw_cuda_access access = {{KVW_CUDA_LOCATION_DEVICE, memory->ordinal},
					       KVW_CUDA_ACCESS_READ_WRITE};
	const struct kvd_cuda_chunk *this = &memory->chunks[chunk];
	uint64_t pointer;
	int ret = KVD_CUDA(memory, cuMemAddressReserve, &pointer, this->bytes, 0, 0, 0);

	if (ret < 0)
		return ret;
	ret = KVD_CUDA(memory, cuMemMap, pointer, this->bytes, 0, this->handle, 0);
	if (ret < 0)
		goto err_free_address;
	ret = KVD_CUDA(memory, cuMemSetAccess, pointer, this->bytes, &access, 1);
	if (ret < 0)
		goto err_unmap;
	*out_pointer = pointer;
	return 0;
err_unmap:
	(void)KVW_CUDA(memory->cuda, NULL, cuMemUnmap, pointer, this->bytes);
err_free_address:
	(void)KVW_CUDA(memory->cuda, NULL, cuMemAddressFree, pointer, this->bytes);
	return ret;
}

void kvd_cuda_unmap_chunk(struct kvd_memory *memory, uint32_t chunk, uint64_t pointer)
{
	(void)KVW_CUDA(memory->cuda, NULL, cuMemUnmap, pointer, memory->chunks[chunk].bytes);
	(void)KVW_CUDA(memory->cuda, NULL, cuMemAddressFree, pointer, memory->chunks[chunk].bytes);
}

/* The null block must be zero and nothing of an earlier user may be read; the driver promises neither. */
static int zero_chunk(struct kvd_memory *memory, uint32_t chunk)
{
	uint64_t pointer;
	int ret = kvd_cuda_map_chunk(memory, chunk, &pointer);

	if (ret < 0)
		return ret;
	ret = KVD_CUDA(memory, cuMemsetD8Async, pointer, 0, memory->chunks[chunk].bytes, NULL);
	if (!ret)
		ret = KVD_CUDA(memory, cuStreamSynchronize, NULL);
	kvd_cuda_unmap_chunk(memory, chunk, pointer);
	return ret;
}

static int make_chunk(struct kvd_memory *memory, const struct kvw_cuda_allocation *properties, uint64_t bytes)
{
	uint32_t chunk = memory->chunk_count;
	struct kvd_cuda_chunk *this = &memory->chunks[chunk];
	int ret = KVD_CUDA(memory, cuMemCreate, &this->handle, bytes, properties, 0);

	if (ret < 0)
		return ret;
	this->bytes = bytes;
	memory->fds[chunk] = -1;
	memory->chunk_count++;
	ret = KVD_CUDA(memory, cuMemExportToShareableHandle, &memory->fds[chunk], this->handle,
		       KVW_CUDA_HANDLE_FD, 0);
	return ret < 0 ? ret : zero_chunk(memory, chunk);
}

int kvd_cuda_make_chunks(struct kvd_memory *memory, _Atomic uint64_t *progress, const _Atomic int *cancel)
{
	struct kvw_cuda_allocation properties;
	uint64_t done = 0;
	int ret = kvd_cuda_note(memory, properties_of(memory, &properties));

	if (!ret)
		ret = plan(memory, &properties);
	while (!ret && done < memory->bytes) {
		uint64_t rest = memory->bytes - done;
		uint64_t bytes = rest < memory->chunk_bytes ? rest : memory->chunk_bytes;

		if (*cancel)
			return -ECANCELED;
		ret = make_chunk(memory, &properties, bytes);
		done += bytes;
		if (!ret)
			*progress = done;
	}
	return ret;
}

void kvd_cuda_drop_chunks(struct kvd_memory *memory)
{
	while (memory->chunk_count) {
		uint32_t last = --memory->chunk_count;

		if (memory->fds[last] >= 0)
			close(memory->fds[last]);
		(void)KVW_CUDA(memory->cuda, NULL, cuMemRelease, memory->chunks[last].handle);
	}
}
