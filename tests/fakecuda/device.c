/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: every one a copy of the same, with a number, UUID and place on the bus of its own. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct attribute {
	unsigned attribute;
	int value;
};

/* An H200's, as far as anybody asks. */
static const struct attribute attributes[] = {
	{1, 1024}, /* threads a block */
	{2, 1024}, /* a block's x, y, z */
	{3, 1024},
	{4, 64},
	{5, 2147483647}, /* a grid's */
	{6, 65535},
	{7, 65535},
	{KVW_CUDA_ATTR_MAX_SHARED_BYTES, 49152},
	{10, 32}, /* warp */
	{KVW_CUDA_ATTR_MULTIPROCESSORS, 132},
	{19, 1}, /* host memory can be mapped */
	{KVW_CUDA_ATTR_COMPUTE_MODE, 0},
	{KVW_CUDA_ATTR_L2_BYTES, 60 << 20},
	{KVW_CUDA_ATTR_UNIFIED_ADDRESSING, 1},
	{KVW_CUDA_ATTR_MAJOR, 9},
	{KVW_CUDA_ATTR_MINOR, 0},
	{91, 1}, /* a registered range has the host's address */
	{KVW_CUDA_ATTR_MAX_SHARED_OPTIN_BYTES, 232448},
	{KVW_CUDA_ATTR_HOST_REGISTER, 1},
	{KVW_CUDA_ATTR_VMM, 1},
	{KVW_CUDA_ATTR_VMM_FD, 1},
	{KVW_CUDA_ATTR_VMM_RDMA, 1},
	{KVW_CUDA_ATTR_CLUSTER_LAUNCH, 1},
	{KVW_CUDA_ATTR_STREAM_MEM_OPS_64, 1},
	{KVW_CUDA_ATTR_IPC_EVENT, 1},
};

/* "102=0,103=0" */
static bool overridden(unsigned attribute, int *out)
{
	const char *at = fake_settings()->attributes;

	while (at && *at) {
		char *end;
		unsigned long name = strtoul(at, &end, 10);

		if (*end != '=')
			return false;
		*out = (int)strtol(end + 1, &end, 10);
		if (name == attribute)
			return true;
		at = *end == ',' ? end + 1 : NULL;
	}
	return false;
}

int fake_attribute(unsigned attribute, int device)
{
	int value;

	if (overridden(attribute, &value))
		return value;
	if (attribute == KVW_CUDA_ATTR_PCI_BUS)
		return 0x19 + 0x20 * device;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (attributes[i].attribute == attribute)
			return attributes[i].value;
	return 0;
}

static bool no_device(int device)
{
	return device < 0 || device >= fake_settings()->devices;
}

FAKE_ENTRY(cuDriverGetVersion, (int *version), (version))
{
	*version = fake_settings()->version;
	return 0;
}

FAKE_ENTRY(cuGetErrorName, (unsigned result, const char **text), (result, text))
{
	switch (result) {
#define NAME(name, number, error, meaning)                                                                   \
	case number:                                                                                         \
		*text = "CUDA_ERROR_" #name;                                                                 \
		return 0;
		KVW_CUDA_RESULT_MAP(NAME)
#undef NAME
	case FAKE_INVALID_CLUSTER_SIZE:
		*text = "CUDA_ERROR_INVALID_CLUSTER_SIZE";
		return 0;
	case 0:
		*text = "CUDA_SUCCESS";
		return 0;
	default:
		*text = NULL;
		return KVW_CUDA_INVALID_VALUE;
	}
}

FAKE_ENTRY(cuGetErrorString, (unsigned result, const char **text), (result, text))
{
	*text = result ? "an error of the double" : "no error";
	return 0;
}

FAKE_ENTRY(cuDeviceGetCount, (int *count), (count))
{
	*count = fake_settings()->devices;
	return 0;
}

FAKE_ENTRY(cuDeviceGet, (int *device, int ordinal), (device, ordinal))
{
	if (no_device(ordinal))
		return KVW_CUDA_INVALID_DEVICE;
	*device = ordinal;
	return 0;
}

FAKE_ENTRY(cuDeviceGetName, (char *name, int bytes, int device), (name, bytes, device))
{
	if (no_device(device))
		return KVW_CUDA_INVALID_DEVICE;
	snprintf(name, (size_t)bytes, "kvpool test device %d", device);
	return 0;
}

FAKE_ENTRY(cuDeviceGetUuid, (struct kvw_cuda_uuid * uuid, int device), (uuid, device))
{
	if (no_device(device))
		return KVW_CUDA_INVALID_DEVICE;
	for (unsigned i = 0; i < sizeof(uuid->bytes); i++)
		uuid->bytes[i] = (uint8_t)(0x10 * (device + 1) + i);
	return 0;
}

FAKE_ENTRY(cuDeviceGetPCIBusId, (char *id, int bytes, int device), (id, bytes, device))
{
	if (no_device(device))
		return KVW_CUDA_INVALID_DEVICE;
	snprintf(id, (size_t)bytes, "0000:%02X:00.0",
		 (unsigned)fake_attribute(KVW_CUDA_ATTR_PCI_BUS, device));
	return 0;
}

/* "0000:19:00.0", "19:00.0", in either case, as the driver takes it. */
FAKE_ENTRY(cuDeviceGetByPCIBusId, (int *device, const char *id), (device, id))
{
	unsigned domain = 0;
	unsigned bus = 0;
	unsigned slot = 0;

	if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
		domain = 0;
		if (sscanf(id, "%x:%x", &bus, &slot) != 2)
			return KVW_CUDA_INVALID_VALUE;
	}
	for (int i = 0; i < fake_settings()->devices && !domain && !slot; i++)
		if (bus == (unsigned)fake_attribute(KVW_CUDA_ATTR_PCI_BUS, i)) {
			*device = i;
			return 0;
		}
	return KVW_CUDA_INVALID_DEVICE;
}

FAKE_ENTRY(cuDeviceGetAttribute, (int *value, unsigned attribute, int device), (value, attribute, device))
{
	if (no_device(device))
		return KVW_CUDA_INVALID_DEVICE;
	*value = fake_attribute(attribute, device);
	return 0;
}

FAKE_ENTRY(cuDeviceTotalMem, (size_t * bytes, int device), (bytes, device))
{
	if (no_device(device))
		return KVW_CUDA_INVALID_DEVICE;
	*bytes = fake_settings()->memory_bytes;
	return 0;
}
