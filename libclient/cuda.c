/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/error.h>

#include "kernels/cuda/image.h"

#include "error.h"
#include "launch_cuda.h"
#include "map_cuda.h"
#include "peers_cuda.h"
#include "words_cuda.h"

int kvc_cuda_fail(int ret, const struct kvw_cuda_error *error, const char *what)
{
	if (ret == -EBUSY)
		return kvc_fail(ret, "%s: %s; a stream is being captured: do it before or after the capture",
				what, error->text);
	return kvc_fail(ret, "%s: %s", what, error->text);
}

int kvc_cuda_enter(const struct kvc_cuda *cuda, bool *out_pushed)
{
	struct kvw_cuda_context *current = NULL;
	struct kvw_cuda_error error;
	int ret = KVW_CUDA(cuda->driver, &error, cuCtxGetCurrent, &current);

	if (!ret && current != cuda->context)
		ret = KVW_CUDA(cuda->driver, &error, cuCtxPushCurrent, cuda->context);
	if (ret < 0)
		return kvc_cuda_fail(ret, &error, "making the attach's context current");
	*out_pushed = current != cuda->context;
	return 0;
}

void kvc_cuda_leave(const struct kvc_cuda *cuda, bool pushed)
{
	if (pushed)
		(void)KVW_CUDA(cuda->driver, NULL, cuCtxPopCurrent, NULL);
}

int kvc_cuda_check_capture(const struct kvc_cuda *cuda, struct kvw_cuda_stream *stream, const char *remedy)
{
	unsigned status = KVW_CUDA_CAPTURE_NONE;
	struct kvw_cuda_error error;
	uint64_t id;
	int ret = KVW_CUDA(cuda->driver, &error, cuStreamGetCaptureInfo, stream, &status, &id);

	if (ret < 0)
		return kvc_cuda_fail(ret, &error, "asking the stream");
	return status == KVW_CUDA_CAPTURE_NONE
		       ? 0
		       : kvc_fail(KVP_ESTATE, "the stream is being captured: %s", remedy);
}

int kvc_cuda_quiet(const struct kvc_cuda *cuda)
{
	bool pushed;
	int ret = kvc_cuda_enter(cuda, &pushed);

	if (ret)
		return ret;
	ret = KVW_CUDA(cuda->driver, NULL, cuCtxSynchronize, );
	kvc_cuda_leave(cuda, pushed);
	return ret;
}

/* ------------------------------------------------------------------ which context */

static void write_uuid(const uint8_t *bytes, char out[41])
{
	static const char digits[] = "0123456789abcdef";
	char *at = out;
	int i;

	memcpy(at, "GPU-", 4);
	at += 4;
	for (i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[bytes[i] >> 4];
		*at++ = digits[bytes[i] & 15];
	}
	*at = 0;
}

static bool has_uuid(struct kvw_cuda *driver, int device, const uint8_t *uuid)
{
	struct kvw_cuda_uuid own;

	return !KVW_CUDA(driver, NULL, cuDeviceGetUuid, &own, device) &&
	       !memcmp(own.bytes, uuid, sizeof(own.bytes));
}

static int fail_absent(const struct kvc_cuda_choice *choice)
{
	char text[41];

	write_uuid(choice->uuid, text);
	return kvc_fail(KVP_EDEVICE,
			"pool '%s' lies on device %s, which this process does not see: look at "
			"CUDA_VISIBLE_DEVICES and "
			"at the container's devices",
			choice->pool, text);
}

/* The primary context of the pool's device; of the first one when any will do. */
static int retain(struct kvc_cuda *cuda, const struct kvc_cuda_choice *choice)
{
	struct kvw_cuda_error error;
	int device, i;
	int ret;

	for (i = 0; i < cuda->driver->devices; i++) {
		ret = KVW_CUDA(cuda->driver, &error, cuDeviceGet, &device, i);
		if (ret < 0)
			return kvc_cuda_fail(ret, &error, "looking for the pool's device");
		if (!choice->uuid || has_uuid(cuda->driver, device, choice->uuid))
			break;
	}
	if (i == cuda->driver->devices)
		return fail_absent(choice);
	ret = KVW_CUDA(cuda->driver, &error, cuDevicePrimaryCtxRetain, &cuda->context, device);
	if (ret < 0)
		return kvc_cuda_fail(ret, &error, "the primary context of the pool's device");
	cuda->device = device;
	cuda->retained = true;
	return 0;
}

static int check_device(const struct kvc_cuda *cuda, const struct kvc_cuda_choice *choice)
{
	struct kvw_cuda_uuid own;
	struct kvw_cuda_error error;
	char wanted[41];
	char found[41];
	int ret = KVW_CUDA(cuda->driver, &error, cuDeviceGetUuid, &own, cuda->device);

	if (ret < 0)
		return kvc_cuda_fail(ret, &error, "asking which device the context is of");
	if (!choice->uuid || !memcmp(own.bytes, choice->uuid, sizeof(own.bytes)))
		return 0;
	write_uuid(choice->uuid, wanted);
	write_uuid(own.bytes, found);
	return kvc_fail(KVP_EDEVICE,
			"pool '%s' lies on device %s, the context is of %s (device %d here): attach with a "
			"context of the "
			"pool's device",
			choice->pool, wanted, found, cuda->device);
}

/* The device of the current context. */
static int find_device(struct kvc_cuda *cuda)
{
	struct kvw_cuda_error error;
	bool pushed;
	int ret = kvc_cuda_enter(cuda, &pushed);

	if (ret)
		return ret;
	ret = KVW_CUDA(cuda->driver, &error, cuCtxGetDevice, &cuda->device);
	kvc_cuda_leave(cuda, pushed);
	return ret < 0 ? kvc_cuda_fail(ret, &error, "asking which device the context is of") : 0;
}

static int choose_context(struct kvc_cuda *cuda, const struct kvc_cuda_choice *choice)
{
	struct kvw_cuda_error error;
	int ret = 0;

	cuda->context = choice->given;
	if (!cuda->context)
		ret = KVW_CUDA(cuda->driver, &error, cuCtxGetCurrent, &cuda->context);
	if (ret < 0)
		return kvc_cuda_fail(ret, &error, "asking for the current context");
	if (!cuda->context)
		return retain(cuda, choice);
	ret = find_device(cuda);
	return ret ? ret : check_device(cuda, choice);
}

/* ------------------------------------------------------------------ open and close */

static int ask_words(struct kvc_cuda *cuda)
{
	struct kvw_cuda_error error;
	int can = 0;
	int ret = KVW_CUDA(cuda->driver, &error, cuDeviceGetAttribute, &can, KVW_CUDA_ATTR_STREAM_MEM_OPS_64,
			   cuda->device);

	if (ret < 0)
		return kvc_cuda_fail(ret, &error, "asking what the device's streams can");
	cuda->has_words = can != 0;
	return can ? 0 : kvc_words_create(&cuda->words);
}

/* Others' timelines may only be read: a device that can't register such memory does not see them. */
static int ask_peers(struct kvc_cuda *cuda)
{
	struct kvw_cuda_error error;
	int can = 0;
	int ret = KVW_CUDA(cuda->driver, &error, cuDeviceGetAttribute, &can, KVW_CUDA_ATTR_READ_ONLY_REGISTER,
			   cuda->device);

	if (ret < 0)
		return kvc_cuda_fail(ret, &error, "asking what memory the device can read");
	return can && cuda->has_words ? kvc_peers_create(&cuda->peers) : 0;
}

/* Without nvcc there are none: what needs them says so. */
int kvc_cuda_load(struct kvc_cuda *cuda)
{
	size_t bytes;
	const void *image = kvk_cuda_image(&bytes);
	bool pushed;
	int ret;

	if (!image)
		return 0;
	ret = kvc_cuda_enter(cuda, &pushed);
	if (ret)
		return ret;
	ret = kvc_cuda_kernels_load(cuda->driver, image, &cuda->kernels);
	kvc_cuda_leave(cuda, pushed);
	return ret;
}

int kvc_cuda_open(const struct kvc_cuda_choice *choice, struct kvc_cuda **out)
{
	struct kvc_cuda *cuda = calloc(1, sizeof(*cuda));
	struct kvw_cuda_error error;
	int ret;

	if (!cuda)
		return kvc_fail_plain(ENOMEM, "a client's device");
	ret = kvw_cuda_open(&cuda->driver, &error);
	if (ret < 0)
		ret = kvc_fail(ret, "%s", error.text);
	if (!ret)
		ret = choose_context(cuda, choice);
	if (!ret)
		ret = ask_words(cuda);
	if (!ret)
		ret = ask_peers(cuda);
	if (ret) {
		kvc_cuda_close(cuda);
		return ret;
	}
	*out = cuda;
	return 0;
}

/* What lies in the context, the last first. */
static void drop_all(struct kvc_cuda *cuda)
{
	bool pushed;

	kvc_device_pool_drop(cuda, cuda->pool);
	if (!cuda->context || kvc_cuda_enter(cuda, &pushed))
		return;
	kvc_unpin(cuda, &cuda->timelines);
	kvc_unpin(cuda, &cuda->slots);
	kvc_cuda_kernels_unload(cuda->kernels);
	kvc_cuda_leave(cuda, pushed);
}

void kvc_cuda_close(struct kvc_cuda *cuda)
{
	if (!cuda)
		return;
	if (cuda->driver)
		drop_all(cuda);
	if (cuda->retained)
		(void)KVW_CUDA(cuda->driver, NULL, cuDevicePrimaryCtxRelease, cuda->device);
	kvw_cuda_close(cuda->driver);
	kvc_words_destroy(cuda->words);
	free(cuda->peers);
	free(cuda);
}
