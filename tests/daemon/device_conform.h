/* SPDX-License-Identifier: Apache-2.0 */
/* What every device must do, whatever it is made of. */
#ifndef KVPOOL_TEST_DEVICE_CONFORM_H
#define KVPOOL_TEST_DEVICE_CONFORM_H

#include "daemon/device.h"

struct device_case {
	const struct kvd_device_ops *ops;
	enum kvd_pages pages;
	const char *backing; /* expected; NULL: any */
	/* A session's view of the memory, and its end. */
	void *(*map)(int session_fd, uint64_t bytes);
	void (*unmap)(void *memory, uint64_t bytes);
};

/* KVT_SKIP when this machine has none of these pages, else the number of failed tests. */
int device_conform(const struct device_case *device);

#endif
