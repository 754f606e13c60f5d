/* SPDX-License-Identifier: Apache-2.0 */
/* Which device a name means, and whether a pool may be there. */
#include "device_cuda_internal.h"

#include "log.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UUID_PREFIX "GPU-"

static bool is_ordinal(const char *name)
{
	size_t digits = strspn(name, "0123456789");

	return digits && digits < 5 && !name[digits];
}

/* "GPU-01234567-89ab-cdef-0123-456789abcdef" */
static bool parse_uuid(const char *name, struct kvw_cuda_uuid *out)
{
	unsigned digits = 0;

	if (strncmp(name, UUID_PREFIX, strlen(UUID_PREFIX)))
		return false;
	for (name += strlen(UUID_PREFIX); *name; name++) {
		char digit[2] = {*name, 0};

		if (*name == '-')
			continue;
		if (!isxdigit((unsigned char)*name) || digits == 2 * sizeof(out->bytes))
			return false;
		out->bytes[digits / 2] =
			(uint8_t)(out->bytes[digits / 2] << 4 | (uint8_t)strtoul(digit, NULL, 16));
		digits++;
	}
	return digits == 2 * sizeof(out->bytes);
}

/* "0000:19:00.0", the domain may be left out. */
static bool is_bus_id(const char *name)
{
	return strchr(name, ':') && strspn(name, "0123456789abcdefABCDEF:.") == strlen(name) &&
	       strlen(name) < 20;
}

static const char *without_prefix(const char *device)
{
	size_t length = strlen(KVD_CUDA_PREFIX);

	return device && !strncmp(device, KVD_CUDA_PREFIX, length) ? device + length : NULL;
}

int kvd_cuda_check_name(const char *device)
{
	struct kvw_cuda_uuid uuid = {0};
	const char *name = without_prefix(device);

	if (!name || strlen(device) >= KVD_CUDA_MAX_DEVICE_NAME)
		return -EINVAL;
	return is_ordinal(name) || parse_uuid(name, &uuid) || is_bus_id(name) ? 0 : -EINVAL;
}

static int find_ordinal(struct kvd_memory *memory, const char *name)
{
	long ordinal = strtol(name, NULL, 10);

	if (ordinal >= memory->cuda->devices) {
		kvd_cuda_complain(memory, "no device '%s': the driver sees %d, 'cuda:0' to 'cuda:%d'",
				  memory->device, memory->cuda->devices, memory->cuda->devices - 1);
		return -ENODEV;
	}
	return KVD_CUDA(memory, cuDeviceGet, &memory->ordinal, (int)ordinal);
}

static int find_uuid(struct kvd_memory *memory, const struct kvw_cuda_uuid *uuid)
{
	struct kvw_cuda_uuid found;

	for (int device = 0; device < memory->cuda->devices; device++) {
		int ret = KVD_CUDA(memory, cuDeviceGetUuid, &found, device);

		if (ret < 0)
			return ret;
		memory->ordinal = device;
		if (!memcmp(&found, uuid, sizeof(found)))
			return 0;
	}
	kvd_cuda_complain(memory,
			  "no device '%s' among the %d that the driver sees; 'nvidia-smi -L' lists them",
			  memory->device, memory->cuda->devices);
	return -ENODEV;
}

static int find_bus_id(struct kvd_memory *memory, const char *name)
{
	int ret = KVD_CUDA_TRY(memory, cuDeviceGetByPCIBusId, &memory->ordinal, name);

	if (ret < 0)
		kvd_cuda_complain(memory, "no device '%s': %s; 'nvidia-smi -q' tells each device's bus id",
				  memory->device, memory->error.text);
	return ret < 0 ? -ENODEV : 0;
}

static int find_device(struct kvd_memory *memory)
{
	struct kvw_cuda_uuid uuid = {0};
	const char *name = without_prefix(memory->device);

	if (is_ordinal(name))
		return find_ordinal(memory, name);
	if (parse_uuid(name, &uuid))
		return find_uuid(memory, &uuid);
	return find_bus_id(memory, name);
}

int kvd_cuda_attribute(struct kvd_memory *memory, unsigned attribute, int *out_value)
{
	int ret = KVD_CUDA_TRY(memory, cuDeviceGetAttribute, out_value, attribute, memory->ordinal);

	if (ret < 0 && memory->error.result == KVW_CUDA_INVALID_VALUE) {
		*out_value = 0;
		return 0;
	}
	return ret;
}

/* Under MPS a client's death says nothing about its kernels: they run in a server that lives on. */
static int check_mps(struct kvd_memory *memory)
{
	int mps;
	int ret = kvd_cuda_note(memory, kvd_cuda_attribute(memory, KVW_CUDA_ATTR_MPS, &mps));

	if (ret < 0 || !mps || memory->allow_mps)
		return ret;
	kvd_cuda_complain(memory,
			  "device '%s' runs under MPS, where a killed client's kernels can't be "
			  "waited for; stop MPS, or set 'allow_mps = yes' in [daemon]",
			  memory->device);
	return -EOPNOTSUPP;
}

static int check_compute_mode(struct kvd_memory *memory)
{
	int mode;
	int ret = kvd_cuda_note(memory, kvd_cuda_attribute(memory, KVW_CUDA_ATTR_COMPUTE_MODE, &mode));

	if (ret < 0 || (mode != KVW_CUDA_COMPUTE_PROHIBITED && mode != KVW_CUDA_COMPUTE_EXCLUSIVE))
		return ret;
	kvd_cuda_complain(
		memory, "device '%s' admits %s (compute mode); 'nvidia-smi -c DEFAULT' changes that",
		memory->device, mode == KVW_CUDA_COMPUTE_EXCLUSIVE ? "one process only" : "no process");
	return -EBUSY;
}

int kvd_cuda_find(struct kvd_memory *memory)
{
	int ret = kvw_cuda_open(&memory->cuda, &memory->error);

	if (ret < 0)
		return kvd_cuda_note(memory, ret);
	ret = find_device(memory);
	if (!ret)
		ret = KVD_CUDA(memory, cuDeviceGetUuid, &memory->uuid, memory->ordinal);
	if (!ret)
		ret = check_mps(memory);
	return ret ? ret : check_compute_mode(memory);
}
