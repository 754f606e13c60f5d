/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules and libraries: the image only has to look like one (a fatbin, an ELF file, or the four bytes that
 * stand in where there is no nvcc); kernels are those of the library built for the CPU, found by name.
 */
#include "fake.h"

#include "tests/simt/kernel_table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SHARED_BYTES 49152u

struct module {
	struct fake_function *functions;
};

static bool is_image(const void *image)
{
	static const unsigned char fatbin[4] = {0x50, 0xed, 0x55, 0xba};

	return !memcmp(image, fatbin, 4) || !memcmp(image, "\177ELF", 4) ||
	       !memcmp(image, SIMT_STUB_IMAGE, 4);
}

/* The whole program, where no library is named. */
void *fake_kernels(void)
{
	static void *library;

	if (!library)
		library = dlopen(fake_settings()->kernels, RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		fprintf(stderr, "fakecuda: %s\n", dlerror());
	return library;
}

static unsigned load(enum fake_kind kind, const void *image, void **out)
{
	struct module *module;

	if (!image)
		return KVW_CUDA_INVALID_VALUE;
	if (!is_image(image))
		return KVW_CUDA_INVALID_IMAGE;
	module = calloc(1, sizeof(*module));
	if (!module)
		abort();
	*out = fake_object_add(kind, module);
	return 0;
}

/* Functions end with their module: a handle kept longer is refused. */
static unsigned unload(enum fake_kind kind, void *handle)
{
	struct module *module = fake_object_get(kind, handle);

	if (!module)
		return KVW_CUDA_INVALID_HANDLE;
	(void)fake_wait_all(NULL);
	while (module->functions) {
		struct fake_function *function = module->functions;

		module->functions = function->next;
		fake_object_remove(FAKE_KIND_FUNCTION, function->handle);
		free(function);
	}
	fake_object_remove(kind, handle);
	free(module);
	return 0;
}

static const struct simt_kernel *find_kernel(const char *name)
{
	void *library = fake_kernels();
	char symbol[256];

	snprintf(symbol, sizeof(symbol), SIMT_KERNEL_PREFIX "%s", name);
	return library ? dlsym(library, symbol) : NULL;
}

static unsigned get_function(struct module *module, const char *name, void **out)
{
	const struct simt_kernel *kernel;
	struct fake_function *function;

	if (!module || !name)
		return module ? KVW_CUDA_INVALID_VALUE : KVW_CUDA_INVALID_HANDLE;
	kernel = find_kernel(name);
	if (!kernel)
		return KVW_CUDA_NOT_FOUND;
	function = calloc(1, sizeof(*function));
	if (!function)
		abort();
	*function = (struct fake_function){
		.kernel = kernel, .max_dynamic_shared = DEFAULT_SHARED_BYTES, .next = module->functions};
	module->functions = function;
	function->handle = fake_object_add(FAKE_KIND_FUNCTION, function);
	*out = function->handle;
	return 0;
}

FAKE_ENTRY(cuModuleLoadData, (struct kvw_cuda_module * *module, const void *image), (module, image))
{
	return load(FAKE_KIND_MODULE, image, (void **)module);
}

FAKE_ENTRY(cuModuleUnload, (struct kvw_cuda_module * module), (module))
{
	return unload(FAKE_KIND_MODULE, module);
}

FAKE_ENTRY(cuModuleGetFunction,
	   (struct kvw_cuda_function * *function, struct kvw_cuda_module *module, const char *name),
	   (function, module, name))
{
	return get_function(fake_object_get(FAKE_KIND_MODULE, module), name, (void **)function);
}

FAKE_ENTRY(cuLibraryLoadData,
	   (struct kvw_cuda_library * *library, const void *image, unsigned *jit_options, void **jit_values,
	    unsigned jit_count, unsigned *options, void **values, unsigned count),
	   (library, image, jit_options, jit_values, jit_count, options, values, count))
{
	(void)jit_options;
	(void)jit_values;
	(void)options;
	(void)values;
	if (jit_count || count)
		return KVW_CUDA_NOT_SUPPORTED;
	return load(FAKE_KIND_LIBRARY, image, (void **)library);
}

FAKE_ENTRY(cuLibraryUnload, (struct kvw_cuda_library * library), (library))
{
	return unload(FAKE_KIND_LIBRARY, library);
}

/* A kernel's handle is that of its function, here. */
FAKE_ENTRY(cuLibraryGetKernel,
	   (struct kvw_cuda_kernel * *kernel, struct kvw_cuda_library *library, const char *name),
	   (kernel, library, name))
{
	return get_function(fake_object_get(FAKE_KIND_LIBRARY, library), name, (void **)kernel);
}

FAKE_ENTRY(cuKernelGetFunction, (struct kvw_cuda_function * *function, struct kvw_cuda_kernel *kernel),
	   (function, kernel))
{
	struct fake_function *ours = fake_object_get(FAKE_KIND_FUNCTION, kernel);

	if (!ours)
		return KVW_CUDA_INVALID_HANDLE;
	*function = ours->handle;
	return 0;
}

FAKE_ENTRY(cuFuncGetAttribute, (int *value, unsigned attribute, struct kvw_cuda_function *handle),
	   (value, attribute, handle))
{
	const struct fake_function *function = fake_object_get(FAKE_KIND_FUNCTION, handle);

	if (!function)
		return KVW_CUDA_INVALID_HANDLE;
	switch (attribute) {
	case KVW_CUDA_FUNCTION_MAX_THREADS:
		*value = function->kernel->max_threads ? (int)function->kernel->max_threads : 1024;
		return 0;
	case KVW_CUDA_FUNCTION_SHARED_BYTES:
	case KVW_CUDA_FUNCTION_REGISTERS:
		*value = 0;
		return 0;
	case KVW_CUDA_FUNCTION_MAX_DYNAMIC_SHARED:
		*value = (int)function->max_dynamic_shared;
		return 0;
	default:
		return KVW_CUDA_INVALID_VALUE;
	}
}

FAKE_ENTRY(cuFuncSetAttribute, (struct kvw_cuda_function * handle, unsigned attribute, int value),
	   (handle, attribute, value))
{
	struct fake_function *function = fake_object_get(FAKE_KIND_FUNCTION, handle);
	int limit = fake_attribute(KVW_CUDA_ATTR_MAX_SHARED_OPTIN_BYTES, fake_context_current()->device);

	if (!function)
		return KVW_CUDA_INVALID_HANDLE;
	if (attribute != KVW_CUDA_FUNCTION_MAX_DYNAMIC_SHARED || value < 0 || value > limit)
		return KVW_CUDA_INVALID_VALUE;
	function->max_dynamic_shared = (uint64_t)value;
	return 0;
}
