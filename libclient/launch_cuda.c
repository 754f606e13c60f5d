/* SPDX-License-Identifier: Apache-2.0 */
#include "launch_cuda.h"

#include "error.h"
#include "kernels/cuda/args.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* More than there are kernels. */
#define MAX_FUNCTIONS 64
/* What every kernel may take without asking. */
#define PLAIN_SHARED_BYTES (48u << 10)

struct function {
	const char *name; /* the launcher's, static */
	struct kvw_cuda_function *function;
	_Atomic uint32_t shared_bytes; /* that the driver was told of */
};

_Static_assert(sizeof(struct kvk_cuda_tensor) == sizeof(struct kvw_cuda_tensor_map),
	       "one takes the other's place");

/*
 * Entries are only appended: a launch reads `count` with acquire and takes the lock for a kernel's first
 * launch alone.
 */
struct kvc_cuda_kernels {
	struct kvw_cuda *cuda;
	struct kvw_cuda_module *module;
	int32_t units;
	uint32_t flags; /* of struct kvk_cuda_device */
	pthread_mutex_t lock;
	_Atomic uint32_t count;
	struct function functions[MAX_FUNCTIONS];
};

static int fail(int ret, const struct kvw_cuda_error *error)
{
	return kvc_fail(ret, "%s", error->text);
}

/* Compute capability 9.0 and no other takes the image's code for sm_90a. */
static int look_at_device(struct kvc_cuda_kernels *kernels, struct kvw_cuda_error *error)
{
	struct kvw_cuda *cuda = kernels->cuda;
	int device, major, minor;
	int ret = KVW_CUDA(cuda, error, cuCtxGetDevice, &device);

	if (!ret)
		ret = KVW_CUDA(cuda, error, cuDeviceGetAttribute, &kernels->units,
			       KVW_CUDA_ATTR_MULTIPROCESSORS, device);
	if (!ret)
		ret = KVW_CUDA(cuda, error, cuDeviceGetAttribute, &major, KVW_CUDA_ATTR_MAJOR, device);
	if (!ret)
		ret = KVW_CUDA(cuda, error, cuDeviceGetAttribute, &minor, KVW_CUDA_ATTR_MINOR, device);
	if (!ret && major == 9 && minor == 0)
		kernels->flags = KVK_CUDA_WARPGROUPS;
	return ret;
}

int kvc_cuda_kernels_load(struct kvw_cuda *cuda, const void *image, struct kvc_cuda_kernels **out)
{
	struct kvc_cuda_kernels *kernels;
	struct kvw_cuda_error error;
	int ret;

	if (!image)
		return kvc_fail(ENOSYS,
				"this build has no kernels for a GPU: it was made without nvcc; install the "
				"CUDA toolkit and build again");
	kernels = calloc(1, sizeof(*kernels));
	if (!kernels)
		return kvc_fail_plain(ENOMEM, "the table of CUDA kernels");
	kernels->cuda = cuda;
	ret = look_at_device(kernels, &error);
	if (!ret)
		ret = KVW_CUDA(cuda, &error, cuModuleLoadData, &kernels->module, image);
	if (ret < 0) {
		free(kernels);
		return fail(ret, &error);
	}
	pthread_mutex_init(&kernels->lock, NULL);
	*out = kernels;
	return 0;
}

void kvc_cuda_kernels_unload(struct kvc_cuda_kernels *kernels)
{
	if (!kernels)
		return;
	(void)KVW_CUDA(kernels->cuda, NULL, cuModuleUnload, kernels->module);
	pthread_mutex_destroy(&kernels->lock);
	free(kernels);
}

static struct function *find(struct kvc_cuda_kernels *kernels, const char *name)
{
	uint32_t count = atomic_load_explicit(&kernels->count, memory_order_acquire);

	for (uint32_t i = 0; i < count; i++) {
		struct function *function = &kernels->functions[i];

		if (function->name == name || !strcmp(function->name, name))
			return function;
	}
	return NULL;
}

/* With the lock. */
static int append(struct kvc_cuda_kernels *kernels, const char *name, struct function **out,
		  struct kvw_cuda_error *error)
{
	uint32_t count = atomic_load_explicit(&kernels->count, memory_order_relaxed);
	struct function *function = find(kernels, name); /* another thread may have been first */
	int ret;

	if (function) {
		*out = function;
		return 0;
	}
	if (count == MAX_FUNCTIONS)
		return kvc_fail(ENOSPC, "kernel '%s' is one more than %d", name, MAX_FUNCTIONS);
	function = &kernels->functions[count];
	ret = KVW_CUDA(kernels->cuda, error, cuModuleGetFunction, &function->function, kernels->module, name);
	if (ret < 0)
		return kvc_fail(ret, "kernel '%s': %s", name, error->text);
	function->name = name;
	atomic_init(&function->shared_bytes, PLAIN_SHARED_BYTES);
	atomic_store_explicit(&kernels->count, count + 1, memory_order_release);
	*out = function;
	return 0;
}

/* With the lock: what was told stays the largest of all. */
static int raise_shared(struct kvc_cuda_kernels *kernels, struct function *function, uint32_t bytes,
			struct kvw_cuda_error *error)
{
	int ret;

	if (bytes <= function->shared_bytes)
		return 0;
	ret = KVW_CUDA(kernels->cuda, error, cuFuncSetAttribute, function->function,
		       KVW_CUDA_FUNCTION_MAX_DYNAMIC_SHARED, (int)bytes);
	if (ret < 0)
		return kvc_fail(ret, "kernel '%s' with %u bytes of shared memory: %s", function->name, bytes,
				error->text);
	function->shared_bytes = bytes;
	return 0;
}

static int prepare(struct kvc_cuda_kernels *kernels, const struct kvk_cuda_launch *launch,
		   struct function **out, struct kvw_cuda_error *error)
{
	struct function *function = find(kernels, launch->kernel);
	int ret = 0;

	if (function && launch->shared_bytes <= function->shared_bytes) {
		*out = function;
		return 0;
	}
	pthread_mutex_lock(&kernels->lock);
	if (!function)
		ret = append(kernels, launch->kernel, &function, error);
	if (!ret)
		ret = raise_shared(kernels, function, launch->shared_bytes, error);
	pthread_mutex_unlock(&kernels->lock);
	if (!ret)
		*out = function;
	return ret;
}

int kvc_cuda_kernels_prepare(struct kvc_cuda_kernels *kernels, const char *name, uint32_t shared_bytes)
{
	const struct kvk_cuda_launch launch = {.kernel = name, .shared_bytes = shared_bytes};
	struct kvw_cuda_error error;
	struct function *function;

	return prepare(kernels, &launch, &function, &error);
}

/* The parameter of a kernel that takes a map: as large as any that begins with a tensor. */
union mapped_args {
	struct kvk_cuda_tensor tensor;
	struct kvk_cuda_mla_group_args mla;
};

/* A copy of the launch's parameter with the map in it; the driver makes one without a look at the device. */
static int put_map(struct kvw_cuda *cuda, const struct kvk_cuda_launch *launch, union mapped_args *args,
		   struct kvw_cuda_error *error)
{
	struct kvk_cuda_tensor tensor;
	struct kvw_cuda_tensor_map map;
	int ret;

	memcpy(&tensor, launch->args, sizeof(tensor)); /* which need not be aligned as the kernel's are */
	const uint64_t dim[] = {tensor.width, tensor.tokens, tensor.pages};
	const uint64_t stride[] = {tensor.token_bytes, tensor.page_bytes};
	const uint32_t box[] = {KVK_CUDA_BOX, KVK_CUDA_BOX, 1}, step[] = {1, 1, 1};

	/* f16 is as good as bf16 here: bytes are moved, and what is outside is zero. */
	ret = KVW_CUDA(cuda, error, cuTensorMapEncodeTiled, &map, KVW_CUDA_TENSOR_BF16, 3,
		       (void *)(uintptr_t)tensor.base, dim, stride, box, step, 0,
		       KVW_CUDA_TENSOR_SWIZZLE_128B, KVW_CUDA_TENSOR_L2_256B, 0);
	if (ret < 0)
		return ret;
	memcpy(args, launch->args, launch->args_bytes);
	memcpy(&args->tensor, &map, sizeof(map));
	return 0;
}

static int launch_on(void *context, const struct kvk_cuda_launch *launch)
{
	struct kvc_cuda_launcher *launcher = context;
	struct kvw_cuda *cuda = launcher->kernels->cuda;
	void *parameters[] = {(void *)(uintptr_t)launch->args};
	union mapped_args mapped;
	struct kvw_cuda_error error;
	struct function *function = NULL;
	int ret = prepare(launcher->kernels, launch, &function, &error);

	if (ret < 0)
		return ret;
	if (launch->tensor) {
		ret = put_map(cuda, launch, &mapped, &error);
		if (ret < 0)
			return kvc_fail(ret, "kernel '%s': %s", launch->kernel, error.text);
		parameters[0] = &mapped;
	}
	ret = KVW_CUDA(cuda, &error, cuLaunchKernel, function->function, launch->blocks, 1, 1,
		       launch->threads, 1, 1, launch->shared_bytes, launcher->stream, parameters, NULL);
	return ret < 0 ? kvc_fail(ret, "kernel '%s': %s", launch->kernel, error.text) : 0;
}

void kvc_cuda_launcher_init(struct kvc_cuda_launcher *launcher, struct kvc_cuda_kernels *kernels,
			    struct kvw_cuda_stream *stream)
{
	*launcher = (struct kvc_cuda_launcher){
		.device = {.size = sizeof(launcher->device),
			   .flags = kernels->flags,
			   .units = kernels->units,
			   .launch = launch_on,
			   .context = launcher},
		.kernels = kernels,
		.stream = stream,
	};
}
