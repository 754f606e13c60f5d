/* SPDX-License-Identifier: Apache-2.0 */
/* Primary contexts, one a device, and each thread's stack of them. */
#include "fake.h"

#define STACK_DEPTH 32

static struct fake_context contexts[FAKE_MAX_DEVICES];
static _Thread_local struct fake_context *stack[STACK_DEPTH];
static _Thread_local unsigned depth;

struct fake_context *fake_context_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

struct fake_context *fake_context_of(int device)
{
	return &contexts[device];
}

void *fake_context_handle(const struct fake_context *context)
{
	return context ? contexts + (context - contexts) : NULL;
}

static struct fake_context *from_handle(const void *handle)
{
	for (int i = 0; i < fake_settings()->devices; i++)
		if (handle == &contexts[i] && contexts[i].retained)
			return &contexts[i];
	return NULL;
}

static bool no_device(int device)
{
	return device < 0 || device >= fake_settings()->devices;
}

FAKE_ENTRY(cuDevicePrimaryCtxRetain, (struct kvw_cuda_context * *context, int device), (context, device))
{
	if (no_device(device))
		return KVW_CUDA_INVALID_DEVICE;
	contexts[device].device = device;
	contexts[device].retained++;
	fake_live_add(FAKE_KIND_CONTEXT, 1);
	fake_late_start();
	*context = fake_context_handle(&contexts[device]);
	return 0;
}

FAKE_ENTRY(cuDevicePrimaryCtxRelease, (int device), (device))
{
	if (no_device(device))
		return KVW_CUDA_INVALID_DEVICE;
	if (!contexts[device].retained)
		return KVW_CUDA_INVALID_CONTEXT;
	if (contexts[device].retained == 1) {
		(void)fake_wait_all(&contexts[device]);
		contexts[device].sticky = 0;
	}
	contexts[device].retained--;
	fake_live_add(FAKE_KIND_CONTEXT, -1);
	return 0;
}

FAKE_ENTRY(cuCtxPushCurrent, (struct kvw_cuda_context * context), (context))
{
	struct fake_context *ours = from_handle(context);

	if (!ours || depth == STACK_DEPTH)
		return KVW_CUDA_INVALID_CONTEXT;
	stack[depth++] = ours;
	return 0;
}

FAKE_ENTRY(cuCtxPopCurrent, (struct kvw_cuda_context * *context), (context))
{
	if (!depth)
		return KVW_CUDA_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = fake_context_handle(stack[depth]);
	return 0;
}

FAKE_ENTRY(cuCtxGetCurrent, (struct kvw_cuda_context * *context), (context))
{
	*context = fake_context_handle(fake_context_current());
	return 0;
}

/* Replaces the top of the stack; NULL takes it off. */
FAKE_ENTRY(cuCtxSetCurrent, (struct kvw_cuda_context * context), (context))
{
	struct fake_context *ours = from_handle(context);

	if (context && !ours)
		return KVW_CUDA_INVALID_CONTEXT;
	if (depth)
		depth--;
	if (ours)
		stack[depth++] = ours;
	return 0;
}

FAKE_ENTRY(cuCtxGetDevice, (int *device), (device))
{
	*device = fake_context_current()->device;
	return 0;
}

FAKE_ENTRY(cuCtxSynchronize, (void), ())
{
	return fake_wait_all(fake_context_current());
}
