/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading: each step that can fail says which thing is wrong and what helps, since whoever reads it can't
 * see this code.
 */
#include "cuda_driver.h"

#include <kvpool/error.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LIBRARY "libcuda.so.1"
#define PAGE_BYTES 4096
#define MIN_TEXT "12.0"
#define MIN_REMEDY "install driver 525.60 or newer"
#define MAJOR(version) ((version) / 1000)
#define MINOR(version) ((version) % 1000 / 10)

_Static_assert(sizeof(struct kvw_cuda) <= PAGE_BYTES, "the handle is one wiped page");

typedef unsigned (*get_proc_address_fn)(const char *name, void **function, int version, uint64_t flags,
					int *status);
typedef unsigned (*get_version_fn)(int *version);

struct result_row {
	unsigned result;
	int error;
	const char *name;
	const char *meaning;
};

static const struct result_row results[] = {
#define KVW_CUDA_RESULT(name, number, error, meaning) {number, error, "CUDA_ERROR_" #name, meaning},
	KVW_CUDA_RESULT_MAP(KVW_CUDA_RESULT)
#undef KVW_CUDA_RESULT
};

struct function_row {
	const char *name;
	int version;
	size_t offset;
};

static const struct function_row functions[] = {
#define KVW_CUDA_FUNCTION(name, version, arguments) {#name, version, offsetof(struct kvw_cuda, name)},
#include "ipc/cuda_driver.def"
#undef KVW_CUDA_FUNCTION
};

static const struct result_row *find_result(unsigned result)
{
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (results[i].result == result)
			return &results[i];
	return NULL;
}

const char *kvw_cuda_result_name(unsigned result)
{
	const struct result_row *row = find_result(result);

	return row ? row->name : NULL;
}

__attribute__((format(printf, 4, 5))) static int fail(int ret, struct kvw_cuda_error *error, unsigned result,
						      const char *format, ...)
{
	va_list arguments;

	if (!error)
		return ret;
	error->result = result;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return ret;
}

/* Of a result that is not in our list the driver may know the name. */
static int fail_unlisted(const struct kvw_cuda *cuda, struct kvw_cuda_error *error, unsigned result,
			 const char *call)
{
	const char *name = NULL;
	const char *text = NULL;

	if (!cuda || !cuda->cuGetErrorName || cuda->cuGetErrorName(result, &name) || !name)
		name = "an unknown CUresult";
	if (!cuda || !cuda->cuGetErrorString || cuda->cuGetErrorString(result, &text) || !text)
		text = "no description";
	return fail(-EIO, error, result, "%s: %s (%u): %s", call, name, result, text);
}

int kvw_cuda_check(const struct kvw_cuda *cuda, struct kvw_cuda_error *error, unsigned result,
		   const char *call)
{
	const struct result_row *row;

	if (!result)
		return 0;
	row = find_result(result);
	if (!row)
		return fail_unlisted(cuda, error, result, call);
	return fail(-row->error, error, result, "%s: %s (%u): %s", call, row->name, result, row->meaning);
}

int kvw_cuda_forked(struct kvw_cuda_error *error, const char *call)
{
	return fail(
		-KVP_EFORKED, error, 0,
		"%s: this CUDA handle belongs to the parent process; a child starts the driver after exec()",
		call);
}

static int fail_missing(struct kvw_cuda_error *error, const char *why)
{
	return fail(
		-ENODEV, error, 0,
		"no CUDA driver: %s; install the NVIDIA driver, or give the container its compute libraries",
		why ? why : LIBRARY " was not found");
}

static int fail_stub(struct kvw_cuda_error *error)
{
	return fail(-ENODEV, error, KVW_CUDA_STUB_LIBRARY,
		    LIBRARY
		    " is the CUDA toolkit's stub, not a driver (CUDA_ERROR_STUB_LIBRARY, 34); take its "
		    "'stubs' folder out of the library path and install the NVIDIA driver");
}

static int fail_old(struct kvw_cuda_error *error, int version)
{
	return fail(-ENOSYS, error, 0,
		    "the CUDA driver is too old: it supports CUDA %d.%d, kvpool needs " MIN_TEXT
		    "; " MIN_REMEDY,
		    MAJOR(version), MINOR(version));
}

/*
 * ISO C has no conversion from an object's pointer to a function's; POSIX says that the bytes are the same.
 */
static void store_function(void *to, void *address)
{
	memcpy(to, &address, sizeof(address));
}

/*
 * Without cuGetProcAddress_v2 it is a driver before 12.0; its version function is as old as the driver API.
 */
static int fail_without_entry(void *library, struct kvw_cuda_error *error)
{
	get_version_fn get_version = NULL;
	int version = 0;
	unsigned result;

	store_function(&get_version, dlsym(library, "cuDriverGetVersion"));
	if (!get_version)
		return fail(-ENODEV, error, 0,
			    LIBRARY
			    " has neither cuGetProcAddress_v2 nor cuDriverGetVersion: it is not a CUDA "
			    "driver; look which file the library path finds");
	result = get_version(&version);
	if (result == KVW_CUDA_STUB_LIBRARY)
		return fail_stub(error);
	return result ? kvw_cuda_check(NULL, error, result, "cuDriverGetVersion") : fail_old(error, version);
}

static int find_entry(get_proc_address_fn *out, struct kvw_cuda_error *error)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return fail_missing(error, dlerror());
	store_function(out, dlsym(library, "cuGetProcAddress_v2"));
	return *out ? 0 : fail_without_entry(library, error);
}

static int resolve(struct kvw_cuda *cuda, const struct function_row *row, get_proc_address_fn get,
		   struct kvw_cuda_error *error)
{
	void *address = NULL;
	int status = 0;
	unsigned result = get(row->name, &address, row->version, 0, &status);

	if (result == KVW_CUDA_STUB_LIBRARY)
		return fail_stub(error);
	if (result && result != KVW_CUDA_NOT_FOUND)
		return kvw_cuda_check(NULL, error, result, "cuGetProcAddress_v2");
	if (result || !address)
		return fail(-ENOSYS, error, result,
			    "the CUDA driver has no %s of CUDA %d.%d, though kvpool needs only " MIN_TEXT
			    "; " MIN_REMEDY,
			    row->name, MAJOR(row->version), MINOR(row->version));
	store_function((char *)cuda + row->offset, address);
	return 0;
}

static int resolve_all(struct kvw_cuda *cuda, get_proc_address_fn get, struct kvw_cuda_error *error)
{
	int ret = 0;

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]) && !ret; i++)
		ret = resolve(cuda, &functions[i], get, error);
	return ret;
}

/* Asked before the table is filled: a driver that is too old should say so, not which function it lacks. */
static int check_version(struct kvw_cuda *cuda, get_proc_address_fn get, struct kvw_cuda_error *error)
{
	static const struct function_row row = {"cuDriverGetVersion", 2020,
						offsetof(struct kvw_cuda, cuDriverGetVersion)};
	unsigned result;
	int ret = resolve(cuda, &row, get, error);

	if (ret < 0)
		return ret;
	result = cuda->cuDriverGetVersion(&cuda->version);
	if (result == KVW_CUDA_STUB_LIBRARY)
		return fail_stub(error);
	if (result)
		return kvw_cuda_check(NULL, error, result, "cuDriverGetVersion");
	return cuda->version < KVW_CUDA_MIN_VERSION ? fail_old(error, cuda->version) : 0;
}

static int fail_without_device(struct kvw_cuda_error *error)
{
	return fail(-ENODEV, error, KVW_CUDA_NO_DEVICE,
		    "the CUDA driver sees no device (CUDA_ERROR_NO_DEVICE, 100); look at nvidia-smi, at "
		    "CUDA_VISIBLE_DEVICES and at the container's devices");
}

static int initialise(struct kvw_cuda *cuda, struct kvw_cuda_error *error)
{
	unsigned result = cuda->cuInit(0);
	int ret;

	if (result == KVW_CUDA_STUB_LIBRARY)
		return fail_stub(error);
	if (result == KVW_CUDA_NO_DEVICE)
		return fail_without_device(error);
	if (result == KVW_CUDA_NOT_INITIALIZED)
		return fail(-KVP_EFORKED, error, result,
			    "cuInit: CUDA was initialised in a parent process before fork() "
			    "(CUDA_ERROR_NOT_INITIALIZED, 3); start the process by exec() or 'spawn'");
	ret = kvw_cuda_check(cuda, error, result, "cuInit");
	if (!ret)
		ret = KVW_CUDA(cuda, error, cuDeviceGetCount, &cuda->devices);
	if (ret < 0)
		return ret;
	return cuda->devices > 0 ? 0 : fail_without_device(error);
}

static int make_page(struct kvw_cuda **out, struct kvw_cuda_error *error)
{
	struct kvw_cuda *cuda =
		mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (cuda == MAP_FAILED)
		return fail(-ENOMEM, error, 0, "no page for the CUDA driver's table: %s", strerror(errno));
	if (madvise(cuda, PAGE_BYTES, MADV_WIPEONFORK)) {
		munmap(cuda, PAGE_BYTES);
		return fail(-ENOSYS, error, 0, "MADV_WIPEONFORK is refused: kvpool needs Linux 4.14");
	}
	cuda->alive = 1;
	*out = cuda;
	return 0;
}

int kvw_cuda_open(struct kvw_cuda **out, struct kvw_cuda_error *error)
{
	get_proc_address_fn get = NULL;
	struct kvw_cuda *cuda = NULL;
	int ret = find_entry(&get, error);

	if (ret < 0)
		return ret;
	ret = make_page(&cuda, error);
	if (ret < 0)
		return ret;
	ret = check_version(cuda, get, error);
	if (!ret)
		ret = resolve_all(cuda, get, error);
	if (!ret)
		ret = initialise(cuda, error);
	if (ret < 0) {
		kvw_cuda_close(cuda);
		return ret;
	}
	*out = cuda;
	return 0;
}

void kvw_cuda_close(struct kvw_cuda *cuda)
{
	if (cuda)
		munmap(cuda, PAGE_BYTES);
}
