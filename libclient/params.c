/* SPDX-License-Identifier: Apache-2.0 */
#include "params.h"

#include <errno.h>
#include <string.h>

#include "error.h"

/* A size that no struct of ours will ever have is not a size but garbage. */
#define MAX_PARAMS_BYTES 4096u

static int check_size(uint32_t size, const char *what)
{
	if (size < sizeof(uint32_t))
		return kvc_fail(EINVAL, "%s.size is %u: set it to sizeof(struct %s)", what, size, what);
	if (size > MAX_PARAMS_BYTES)
		return kvc_fail(E2BIG, "%s.size is %u, above %u: set it to sizeof(struct %s)", what, size,
				MAX_PARAMS_BYTES, what);
	return 0;
}

static uint32_t read_size(const void *given)
{
	uint32_t size;

	memcpy(&size, given, sizeof(size));
	return size;
}

int kvc_params_check(const void *given, const char *what)
{
	return check_size(read_size(given), what);
}

int kvc_params_read(void *own, uint32_t own_bytes, const void *given, const char *what)
{
	uint32_t size = read_size(given);
	const uint8_t *bytes = given;
	int ret = check_size(size, what);
	uint32_t i;

	if (ret)
		return ret;
	for (i = own_bytes; i < size; i++)
		if (bytes[i])
			return kvc_fail(E2BIG,
					"%s: byte %u is set, but this library knows only %u: it is older "
					"than the caller",
					what, i, own_bytes);
	memset(own, 0, own_bytes);
	memcpy(own, given, size < own_bytes ? size : own_bytes);
	return 0;
}

int kvc_params_write(void *given, void *own, uint32_t own_bytes, const char *what)
{
	uint32_t size = read_size(given);
	int ret = check_size(size, what);

	if (ret)
		return ret;
	memcpy(own, &size, sizeof(size));
	memcpy(given, own, size < own_bytes ? size : own_bytes);
	return 0;
}
