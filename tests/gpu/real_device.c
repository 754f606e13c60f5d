/* SPDX-License-Identifier: Apache-2.0 */
#include "real_device.h"

#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

struct kvw_cuda *gpu_open_or_skip(void)
{
	struct kvw_cuda_error error = {.text = ""};
	struct kvw_cuda *cuda = NULL;
	int ret = kvw_cuda_open(&cuda, &error);

	if (ret == -ENODEV) {
		fprintf(stderr, "skipped: no device: %s\n", error.text);
		_exit(KVT_SKIP);
	}
	if (ret)
		gpu_give_up(error.text);
	return cuda;
}

void gpu_give_up(const char *why)
{
	fprintf(stderr, "the device can't be used: %s\n", why);
	_exit(1);
}
