/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the host device share. */
#ifndef KVPOOL_DAEMON_DEVICE_HOST_H
#define KVPOOL_DAEMON_DEVICE_HOST_H

#include "device.h"

struct kvd_memory {
	int fd; /* also holds the guard lock */
	uint64_t bytes;
	/* What it is made of, never AUTO. THP that did not come becomes 4K, on the worker's thread. */
	_Atomic enum kvd_pages pages;
	char name[KVW_MAX_NAME_BYTES + 1];
};

int kvd_host_populate(struct kvd_memory *memory, _Atomic uint64_t *progress, const _Atomic int *cancel);

#endif
