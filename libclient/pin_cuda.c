/* SPDX-License-Identifier: Apache-2.0 */
/* Registering host memory with the driver, in pieces: a call for 512 GiB or more fails, and each holds the driver's locks. */
#include <errno.h>

#include "cuda.h"
#include "error.h"

#define PIECE_BYTES (UINT64_C(64) << 30)

static int pin_piece(const struct kvc_cuda *cuda, struct kvc_pinned *pinned, uint64_t bytes, unsigned flags,
		     struct kvw_cuda_error *error)
{
	uint8_t *at = pinned->memory + pinned->bytes;
	uint64_t address;
	int ret = KVW_CUDA(cuda->driver, error, cuMemHostRegister, at, bytes, flags);

	if (ret < 0)
		return ret;
	ret = KVW_CUDA(cuda->driver, error, cuMemHostGetDevicePointer, &address, at, 0);
	if (ret < 0) {
		(void)KVW_CUDA(cuda->driver, NULL, cuMemHostUnregister, at);
		return ret;
	}
	if (!pinned->bytes)
		pinned->address = address;
	pinned->bytes += bytes;
	return address == pinned->address + pinned->bytes - bytes ? 0 : -EOPNOTSUPP;
}

static int pin(const struct kvc_cuda *cuda, void *memory, uint64_t bytes, unsigned flags, const char *what,
	       struct kvc_pinned *out)
{
	struct kvc_pinned pinned = {.memory = memory};
	struct kvw_cuda_error error = {.text = "the device sees pieces of the memory apart"};
	int ret = 0;

	while (!ret && pinned.bytes < bytes) {
		uint64_t rest = bytes - pinned.bytes;

		ret = pin_piece(cuda, &pinned, rest < PIECE_BYTES ? rest : PIECE_BYTES, flags, &error);
	}
	if (ret < 0) {
		kvc_unpin(cuda, &pinned);
		return kvc_fail(ret,
				"pinning %llu bytes of the %s: %s; is the locked memory limited (ulimit -l), "
				"or a capture "
				"running?",
				(unsigned long long)bytes, what, error.text);
	}
	*out = pinned;
	return 0;
}

int kvc_pin(const struct kvc_cuda *cuda, void *memory, uint64_t bytes, const char *what,
	    struct kvc_pinned *out)
{
	return pin(cuda, memory, bytes, KVW_CUDA_HOST_PORTABLE | KVW_CUDA_HOST_DEVICEMAP, what, out);
}

int kvc_pin_to_read(const struct kvc_cuda *cuda, void *memory, uint64_t bytes, const char *what,
		    struct kvc_pinned *out)
{
	return pin(cuda, memory, bytes,
		   KVW_CUDA_HOST_PORTABLE | KVW_CUDA_HOST_DEVICEMAP | KVW_CUDA_HOST_READ_ONLY, what, out);
}

void kvc_unpin(const struct kvc_cuda *cuda, struct kvc_pinned *pinned)
{
	uint64_t at;

	for (at = 0; at < pinned->bytes; at += PIECE_BYTES)
		(void)KVW_CUDA(cuda->driver, NULL, cuMemHostUnregister, pinned->memory + at);
	*pinned = (struct kvc_pinned){0};
}
