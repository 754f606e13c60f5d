/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only way in: cuGetProcAddress_v2. A name is asked for with a version, and the double has each function
 * in one version only, that of kvpool's table; asking for it with another one is an error here, where the
 * driver would hand out a function with other arguments.
 */
#include "fake.h"

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct row {
	const char *name;
	int version;
	void (*function)(void);
};

static const struct row rows[] = {
#define KVW_CUDA_FUNCTION(name, version, arguments) {#name, version, (void (*)(void))fake_##name},
#include "ipc/cuda_driver.def"
#undef KVW_CUDA_FUNCTION
};

EXPORT unsigned cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
				    int *status);

EXPORT unsigned cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
				    int *status)
{
	(void)flags;
	if (fake_settings()->stub)
		return KVW_CUDA_STUB_LIBRARY;
	*function = NULL;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(rows[i].name, name) || version > fake_settings()->version)
			continue;
		if (rows[i].version != version)
			fprintf(stderr, "fakecuda: %s asked for as of %d, known as of %d\n", name, version,
				rows[i].version);
		else
			memcpy(function, &rows[i].function, sizeof(*function));
	}
	if (status)
		*status = *function ? 0 : 1;
	return *function ? 0 : KVW_CUDA_NOT_FOUND;
}
