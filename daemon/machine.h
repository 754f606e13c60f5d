/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this machine has to give, read from /proc and /sys: the pools look before they take, and --check shows it. `root` is put in
 * front of every path ("" but in tests).
 */
#ifndef KVPOOL_DAEMON_MACHINE_H
#define KVPOOL_DAEMON_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#define KVD_HUGE_BYTES (2ull << 20)

/* Bytes that can be had before something must be swapped or killed. UINT64_MAX: not known, or no limit. */
struct kvd_machine_memory {
	uint64_t available; /* MemAvailable */
	uint64_t
		cgroup; /* what the tightest cgroup above us leaves: memory.max less what is used and not reclaimable */
	char cgroup_path[256];
};
void kvd_machine_memory(const char *root, struct kvd_machine_memory *out);

/* Huge pages of 2 MiB. */
struct kvd_machine_huge {
	bool supported;
	uint64_t total;
	uint64_t unpromised; /* free and not reserved by anyone */
};
void kvd_machine_huge(const char *root, struct kvd_machine_huge *out);

/* The word in force for 2 MiB pages of shared memory ("never", "advise", ...; "" when the kernel has no THP). */
void kvd_machine_shmem_thp(const char *root, char *out, uint32_t capacity);
/* Whether that word grants huge pages to a mapping that asks for them. */
bool kvd_machine_thp_granted(const char *word);

/* A whole file's number, or `otherwise`. */
int64_t kvd_machine_number(const char *root, const char *path, int64_t otherwise);

/* "4.4 GiB": for messages; at least 16 bytes. */
void kvd_format_bytes(uint64_t bytes, char *out, uint32_t capacity);

#endif
