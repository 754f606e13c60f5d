/* SPDX-License-Identifier: Apache-2.0 */
/* --check of CUDA: the driver, and for each pool that is on a device, the device and how it would be shared. */
#include "preflight_internal.h"

#include "log.h"

#include <stdio.h>
#include <stdlib.h>

static bool any_cuda(const struct kvd_config *config)
{
	for (uint32_t i = 0; i < config->pool_count; i++) {
		if (kvd_pool_config_is_cuda(&config->pools[i]))
			return true;
	}
	return false;
}

static void look_at_driver(struct kvd_facts_cuda *facts)
{
	struct kvw_cuda_error error = {.text = ""};
	struct kvw_cuda *cuda;

	facts->driver = kvw_cuda_open(&cuda, &error);
	snprintf(facts->driver_text, sizeof(facts->driver_text), "%s", error.text);
	if (facts->driver)
		return;
	facts->version = cuda->version;
	facts->devices = cuda->devices;
	kvw_cuda_close(cuda);
}

static void look_at_pool(const struct kvd_pool_config *pool, struct kvd_facts_cuda *facts, uint32_t number)
{
	const struct kvd_memory_params params = {
		.name = pool->name,
		.bytes = pool->geometry.bytes,
		.device = pool->device,
		.share = pool->share,
		.allow_mps = pool->allow_mps != 0,
	};
	struct kvd_memory *memory;
	int ret = kvd_device_cuda.create(&params, &memory);

	facts->pools[number].ret = ret;
	if (ret)
		return;
	facts->pools[number].ret = kvd_cuda_try(memory, &facts->pools[number].device);
	snprintf(facts->pools[number].text, sizeof(facts->pools[number].text), "%s",
		 kvd_cuda_problem(memory));
	kvd_device_cuda.destroy(memory);
}

void kvd_facts_look_cuda(const struct kvd_config *config, struct kvd_facts *out)
{
	if (!any_cuda(config))
		return;
	out->cuda = calloc(1, sizeof(*out->cuda));
	if (!out->cuda)
		return;
	look_at_driver(out->cuda);
	for (uint32_t i = 0; !out->cuda->driver && i < config->pool_count; i++) {
		if (kvd_pool_config_is_cuda(&config->pools[i]))
			look_at_pool(&config->pools[i], out->cuda, i);
	}
}

/* All of one device's pools have to find room in it. */
static uint64_t bytes_on_device(const struct kvd_report *report, int ordinal)
{
	const struct kvd_config *config = report->config;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < config->pool_count; i++) {
		if (kvd_pool_config_is_cuda(&config->pools[i]) && !report->facts->cuda->pools[i].ret &&
		    report->facts->cuda->pools[i].device.ordinal == ordinal)
			bytes += config->pools[i].geometry.bytes;
	}
	return bytes;
}

static void judge_device(struct kvd_report *report, uint32_t number, const char *subject)
{
	const struct kvd_pool_config *pool = &report->config->pools[number];
	const struct kvd_cuda_device *device = &report->facts->cuda->pools[number].device;
	uint64_t need = bytes_on_device(report, device->ordinal);
	bool fits = need <= device->free_bytes;
	char need_text[32];
	char free_text[32];
	char total_text[32];

	kvd_format_bytes(need, need_text, sizeof(need_text));
	kvd_format_bytes(device->free_bytes, free_text, sizeof(free_text));
	kvd_format_bytes(device->total_bytes, total_text, sizeof(total_text));
	kvd_report_line(report, fits ? KVD_VERDICT_OK : KVD_VERDICT_FAIL, subject,
			fits ? NULL : "lower 'blocks', or end what uses the device",
			"'%s' is device %d, its pools take %s, %s of %s are free; shared by %s: %s",
			pool->device, device->ordinal, need_text, free_text, total_text,
			device->share == KVD_SHARE_FD ? "fd" : "ipc", device->why);
}

static void judge_pool(struct kvd_report *report, uint32_t number)
{
	const struct kvd_facts_cuda *facts = report->facts->cuda;
	char subject[KVW_MAX_NAME_BYTES + 20];

	snprintf(subject, sizeof(subject), "device of pool %s", report->config->pools[number].name);
	if (!facts->pools[number].ret)
		judge_device(report, number, subject);
	else
		kvd_report_line(report, KVD_VERDICT_FAIL, subject,
				"as it says, or devices = host; until then the pool is switched off", "%s",
				facts->pools[number].text);
}

void kvd_judge_cuda(struct kvd_report *report)
{
	const struct kvd_facts_cuda *facts = report->facts->cuda;

	if (!facts)
		return;
	if (facts->driver) {
		kvd_report_line(report, KVD_VERDICT_FAIL, "cuda driver",
				"install the driver (not the toolkit), or devices = host", "%s",
				facts->driver_text);
		return;
	}
	kvd_report_line(report, KVD_VERDICT_OK, "cuda driver", NULL, "CUDA %d.%d, %d device%s",
			facts->version / 1000, facts->version % 1000 / 10, facts->devices,
			facts->devices == 1 ? "" : "s");
	for (uint32_t i = 0; i < report->config->pool_count; i++) {
		if (kvd_pool_config_is_cuda(&report->config->pools[i]))
			judge_pool(report, i);
	}
}
