/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU does not stop when its process is killed: what was launched goes on for a while. Here a process of
 * its own (late_device.c) gets the descriptors of its client's memory as it comes, and shares a table of the
 * ranges that queued copies, fills and words write (what a kernel will write is not known). When the client
 * dies it writes to those for some time.
 */
#ifndef KVPOOL_TESTS_FAKECUDA_LATE_H
#define KVPOOL_TESTS_FAKECUDA_LATE_H

#include <stdatomic.h>
#include <stdint.h>

#define LATE_SLOTS 4096
#define LATE_BYTE 0xee
/* The device process's own descriptors. */
#define LATE_SOCKET_FD 3
#define LATE_TABLE_FD 4

struct late_slot {
	_Atomic uint64_t id; /* of the memory; 0: free. Stored last */
	_Atomic uint64_t offset, bytes;
};

struct late_table {
	struct late_slot slots[LATE_SLOTS];
};

/* One packet; with a descriptor when memory comes, without when it goes. */
struct late_message {
	uint64_t id;
};

#endif
