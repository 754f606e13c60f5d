/* SPDX-License-Identifier: Apache-2.0 */
/* The environment, read once. */
#include "fake.h"

#include <stdlib.h>
#include <time.h>

static struct fake_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

uint64_t fake_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void read_all(void)
{
	settings.devices = (int)number("FAKECUDA_DEVICES", 2);
	if (settings.devices > FAKE_MAX_DEVICES)
		settings.devices = FAKE_MAX_DEVICES;
	settings.version = (int)number("FAKECUDA_VERSION", 12080);
	settings.memory_bytes = number("FAKECUDA_MEMORY_MIB", 4096) << 20;
	settings.delay_ns = number("FAKECUDA_DELAY_US", 300) * 1000;
	settings.late_ms = number("FAKECUDA_LATE_MS", 0);
	settings.stub = number("FAKECUDA_STUB", 0) != 0;
	settings.protect = number("FAKECUDA_PROTECT", 0) != 0;
	settings.report = number("FAKECUDA_REPORT", 0) != 0;
	settings.attributes = getenv("FAKECUDA_ATTRIBUTES");
	settings.kernels = getenv("FAKECUDA_KERNELS");
	settings.seed_given = getenv("KVP_SEED") != NULL;
	settings.seed = number("KVP_SEED", fake_now_ns());
}

const struct fake_settings *fake_settings(void)
{
	pthread_once(&once, read_all);
	return &settings;
}
