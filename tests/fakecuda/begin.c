/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands before every call: the process must have initialised, a context must be current and well, no
 * capture may forbid it, and a test may have asked for this very call to fail. Every call is counted, also
 * one that is refused.
 */
#include "fake.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	EARLY = 1,      /* before cuInit() */
	FREE = 2,       /* needs no current context */
	CAPTURABLE = 4, /* not forbidden during a capture */
	RELEASES = 8,   /* ends a handle, whatever it answers */
	UNCOUNTED = 16, /* can't fail */
};

static const char *const names[] = {
#define KVW_CUDA_FUNCTION(name, version, arguments) #name,
#include "ipc/cuda_driver.def"
#undef KVW_CUDA_FUNCTION
};

/* What is not here needs a context and is forbidden during a capture. */
static const unsigned char flags_of[FAKE_FUNCTIONS] = {
	[FAKE_cuInit] = EARLY | FREE | CAPTURABLE,
	[FAKE_cuDriverGetVersion] = EARLY | FREE | CAPTURABLE,
	[FAKE_cuGetErrorName] = EARLY | FREE | CAPTURABLE | UNCOUNTED,
	[FAKE_cuGetErrorString] = EARLY | FREE | CAPTURABLE | UNCOUNTED,
	[FAKE_cuDeviceGetCount] = FREE | CAPTURABLE,
	[FAKE_cuDeviceGet] = FREE | CAPTURABLE,
	[FAKE_cuDeviceGetName] = FREE | CAPTURABLE,
	[FAKE_cuDeviceGetUuid] = FREE | CAPTURABLE,
	[FAKE_cuDeviceGetPCIBusId] = FREE | CAPTURABLE,
	[FAKE_cuDeviceGetByPCIBusId] = FREE | CAPTURABLE,
	[FAKE_cuDeviceGetAttribute] = FREE | CAPTURABLE,
	[FAKE_cuDeviceTotalMem] = FREE | CAPTURABLE,
	[FAKE_cuDevicePrimaryCtxRetain] = FREE | CAPTURABLE,
	[FAKE_cuDevicePrimaryCtxRelease] = FREE | CAPTURABLE | RELEASES,
	[FAKE_cuCtxPushCurrent] = FREE | CAPTURABLE,
	[FAKE_cuCtxPopCurrent] = FREE | CAPTURABLE | RELEASES,
	[FAKE_cuCtxGetCurrent] = FREE | CAPTURABLE,
	[FAKE_cuCtxSetCurrent] = FREE | CAPTURABLE,
	[FAKE_cuCtxGetDevice] = CAPTURABLE,
	[FAKE_cuMemFree] = RELEASES,
	[FAKE_cuMemGetInfo] = CAPTURABLE,
	[FAKE_cuMemGetAddressRange] = CAPTURABLE,
	[FAKE_cuPointerGetAttribute] = CAPTURABLE,
	[FAKE_cuMemcpyHtoDAsync] = CAPTURABLE,
	[FAKE_cuMemcpyDtoHAsync] = CAPTURABLE,
	[FAKE_cuMemcpyDtoDAsync] = CAPTURABLE,
	[FAKE_cuMemsetD8Async] = CAPTURABLE,
	[FAKE_cuMemsetD32Async] = CAPTURABLE,
	[FAKE_cuMemHostUnregister] = RELEASES,
	[FAKE_cuMemHostGetDevicePointer] = CAPTURABLE,
	[FAKE_cuIpcGetMemHandle] = CAPTURABLE,
	[FAKE_cuIpcCloseMemHandle] = RELEASES,
	[FAKE_cuIpcGetEventHandle] = CAPTURABLE,
	[FAKE_cuMemGetAllocationGranularity] = FREE | CAPTURABLE,
	[FAKE_cuMemCreate] = FREE,
	[FAKE_cuMemRelease] = FREE | CAPTURABLE | RELEASES,
	[FAKE_cuMemExportToShareableHandle] = FREE | CAPTURABLE,
	[FAKE_cuMemImportFromShareableHandle] = FREE | CAPTURABLE,
	[FAKE_cuMemAddressReserve] = FREE | CAPTURABLE,
	[FAKE_cuMemAddressFree] = FREE | CAPTURABLE | RELEASES,
	[FAKE_cuMemMap] = FREE,
	[FAKE_cuMemUnmap] = FREE | RELEASES,
	[FAKE_cuMemSetAccess] = FREE,
	[FAKE_cuStreamCreate] = CAPTURABLE,
	[FAKE_cuStreamDestroy] = CAPTURABLE | RELEASES,
	[FAKE_cuStreamSynchronize] = CAPTURABLE, /* of a captured stream it is refused there */
	[FAKE_cuStreamQuery] = CAPTURABLE,
	[FAKE_cuStreamGetCtx] = CAPTURABLE,
	[FAKE_cuStreamWaitEvent] = CAPTURABLE,
	[FAKE_cuStreamWriteValue32] = CAPTURABLE,
	[FAKE_cuStreamWaitValue32] = CAPTURABLE,
	[FAKE_cuStreamWriteValue64] = CAPTURABLE,
	[FAKE_cuStreamWaitValue64] = CAPTURABLE,
	[FAKE_cuLaunchHostFunc] = CAPTURABLE,
	[FAKE_cuStreamBeginCapture] = CAPTURABLE,
	[FAKE_cuStreamEndCapture] = CAPTURABLE | RELEASES,
	[FAKE_cuStreamGetCaptureInfo] = CAPTURABLE,
	[FAKE_cuThreadExchangeStreamCaptureMode] = FREE | CAPTURABLE,
	[FAKE_cuGraphInstantiateWithFlags] = CAPTURABLE,
	[FAKE_cuGraphLaunch] = CAPTURABLE,
	[FAKE_cuGraphDestroy] = CAPTURABLE | RELEASES,
	[FAKE_cuGraphExecDestroy] = CAPTURABLE | RELEASES,
	[FAKE_cuEventCreate] = CAPTURABLE,
	[FAKE_cuEventRecord] = CAPTURABLE,
	[FAKE_cuEventQuery] = CAPTURABLE,
	[FAKE_cuEventElapsedTime] = CAPTURABLE,
	[FAKE_cuEventDestroy] = CAPTURABLE | RELEASES,
	[FAKE_cuModuleUnload] = RELEASES,
	[FAKE_cuModuleGetFunction] = CAPTURABLE,
	[FAKE_cuLibraryUnload] = RELEASES,
	[FAKE_cuLibraryGetKernel] = CAPTURABLE,
	[FAKE_cuKernelGetFunction] = CAPTURABLE,
	[FAKE_cuFuncGetAttribute] = CAPTURABLE,
	[FAKE_cuFuncSetAttribute] = CAPTURABLE,
	[FAKE_cuLaunchKernel] = CAPTURABLE,
	[FAKE_cuLaunchKernelEx] = CAPTURABLE,
	[FAKE_cuTensorMapEncodeTiled] = FREE | CAPTURABLE,
};

_Static_assert(FAKE_FUNCTIONS <= FAKE_MAX_FUNCTIONS, "every function has a counter");

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;

/* Of the process that called cuInit(); a forked child has another. */
static _Atomic int owner;

const char *fake_function_name(enum fake_function_id function)
{
	return names[function];
}

static bool loses_context(unsigned code)
{
	return code == KVW_CUDA_ECC_UNCORRECTABLE || code == KVW_CUDA_ILLEGAL_ADDRESS ||
	       code == KVW_CUDA_LAUNCH_TIMEOUT ||
	       (code >= 710 && code <= KVW_CUDA_LAUNCH_FAILED &&
		code != KVW_CUDA_HOST_MEMORY_ALREADY_REGISTERED &&
		code != KVW_CUDA_HOST_MEMORY_NOT_REGISTERED);
}

static unsigned count_call(enum fake_function_id function)
{
	struct fake_process *self = fake_self();
	uint64_t call = ++self->calls;
	uint64_t call_of_function = ++self->function_calls[function];
	uint64_t wanted = self->fail_call;

	if (self->fail_function)
		return self->fail_function == function + 1u && (!wanted || wanted == call_of_function)
			       ? self->fail_code
			       : 0;
	return wanted && wanted == call ? self->fail_code : 0;
}

static unsigned check_context(struct fake_call *call, unsigned flags)
{
	const struct fake_context *context = fake_context_current();

	if (flags & FREE)
		return 0;
	if (!context)
		return KVW_CUDA_INVALID_CONTEXT;
	if (!context->retained)
		return KVW_CUDA_CONTEXT_IS_DESTROYED;
	if (!context->sticky)
		return 0;
	if (!(flags & RELEASES))
		return context->sticky;
	call->answer = context->sticky;
	return 0;
}

static unsigned check(struct fake_call *call, unsigned flags)
{
	unsigned result = check_context(call, flags);

	if (result || (flags & CAPTURABLE))
		return result;
	return fake_capture_check_unsafe();
}

static bool forked(void)
{
	return owner && owner != getpid();
}

/* Another thread of the parent may have held the lock. */
static void renew_lock(void)
{
	pthread_mutex_init(&fake_lock, NULL);
}

static unsigned check_early(enum fake_function_id function, unsigned flags)
{
	if (fake_settings()->stub)
		return KVW_CUDA_STUB_LIBRARY;
	if (!(flags & EARLY) && (!owner || forked()))
		return KVW_CUDA_NOT_INITIALIZED;
	if (function == FAKE_cuInit && forked())
		return KVW_CUDA_NOT_INITIALIZED;
	return fake_in_host_function() && !(flags & EARLY) ? KVW_CUDA_NOT_PERMITTED : 0;
}

/* As a driver that waits for a GPU which does not answer; without the lock, so that other threads go on. */
static void hang(enum fake_function_id function)
{
	static const struct timespec pause = {.tv_nsec = 1000000};
	struct fake_process *self = fake_self();

	if (self->hang_function != function + 1u)
		return;
	self->hanging++;
	while (self->hang_function == function + 1u)
		nanosleep(&pause, NULL);
	self->hanging--;
}

static void note_thread(unsigned flags)
{
	if (!(flags & UNCOUNTED) && gettid() == getpid())
		fake_self()->first_thread_calls++;
}

unsigned fake_begin(struct fake_call *call, enum fake_function_id function)
{
	unsigned flags = flags_of[function];
	unsigned result = check_early(function, flags);

	call->answer = 0;
	if (result)
		return result;
	if (!forked()) {
		hang(function);
		note_thread(flags);
	}
	pthread_mutex_lock(&fake_lock);
	if ((flags & UNCOUNTED) || forked())
		return 0;
	result = count_call(function);
	if (loses_context(result) && fake_context_current())
		fake_context_lose(fake_context_current(), result);
	if (result && (flags & RELEASES)) {
		call->answer = result;
		result = 0;
	}
	if (!result)
		result = check(call, flags);
	if (result)
		pthread_mutex_unlock(&fake_lock);
	return result;
}

unsigned fake_end(struct fake_call *call, unsigned result)
{
	pthread_mutex_unlock(&fake_lock);
	return call->answer ? call->answer : result;
}

FAKE_ENTRY(cuInit, (unsigned flags), (flags))
{
	if (flags)
		return KVW_CUDA_INVALID_VALUE;
	if (!fake_settings()->devices)
		return KVW_CUDA_NO_DEVICE;
	if (!owner)
		pthread_atfork(NULL, NULL, renew_lock);
	owner = getpid();
	return 0;
}
