/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA kernels in one context: their image is loaded once, each kernel is looked up at its first launch,
 * and operations get a struct kvk_cuda_device that launches on a stream. Loading is for the time of
 * attaching: a capture forbids it.
 */
#ifndef KVPOOL_LIBCLIENT_LAUNCH_CUDA_H
#define KVPOOL_LIBCLIENT_LAUNCH_CUDA_H

#include "ipc/cuda_driver.h"
#include "kernels/cuda/launch.h"

struct kvc_cuda_kernels;

/*
 * Into the current context, which must be current again for every launch and for unloading; `cuda` stays the
 * caller's and must live as long. `image` is kvk_cuda_image()'s; NULL, in a build without nvcc, gives
 * -ENOSYS. Blocks. The thread's error text says what failed.
 */
int kvc_cuda_kernels_load(struct kvw_cuda *cuda, const void *image, struct kvc_cuda_kernels **out);
/* Nothing of it may be queued any more. NULL is fine. */
void kvc_cuda_kernels_unload(struct kvc_cuda_kernels *kernels);

/* Looks a kernel up before its first launch, which may be in a capture, where looking up is forbidden. */
int kvc_cuda_kernels_prepare(struct kvc_cuda_kernels *kernels, const char *name, uint32_t shared_bytes);

/* Launches on one stream; any number of them share the kernels, on any threads. */
struct kvc_cuda_launcher {
	struct kvk_cuda_device device; /* for kvk_<op>_cuda(); points to this launcher, which must not move */
	struct kvc_cuda_kernels *kernels;
	struct kvw_cuda_stream *stream;
};

void kvc_cuda_launcher_init(struct kvc_cuda_launcher *launcher, struct kvc_cuda_kernels *kernels,
			    struct kvw_cuda_stream *stream);

#endif
