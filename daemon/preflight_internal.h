/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --check in two halves: looking (facts, nothing judged) and judging (no look at the machine), so that tests can judge
 * machines that they don't have.
 */
#ifndef KVPOOL_DAEMON_PREFLIGHT_INTERNAL_H
#define KVPOOL_DAEMON_PREFLIGHT_INTERNAL_H

#include "preflight.h"

#include "ipc/cuda_driver.h"

#include "device_cuda.h"
#include "machine.h"

#include <sys/resource.h>

/*
 * Of an attached session: socket, pidfd, eventfd, channel, timelines, tables, answers (two), a pool's descriptor while it is sent;
 * and the first three of one before it, which the closer has not come to.
 */
#define KVD_SESSION_DESCRIPTORS 12u
/* Of an engine whose session has ended, until it is proved gone: pidfd, channel, timelines, tables, answers (two), a pool's. */
#define KVD_ENGINE_DESCRIPTORS 7u
/* The daemon's own: loop, log, listener, worker, and three a pool. */
#define KVD_OWN_DESCRIPTORS (64u + 3u * KVW_MAX_POOLS)

struct kvd_facts {
	struct kvd_machine_memory memory;
	struct kvd_machine_huge huge;
	char shmem_thp[32];
	struct rlimit descriptors;
	struct rlimit locked;
	struct rlimit file_bytes;
	int io_uring_defer; /* 0, or the negative errno that the kernel answered */
	int io_uring_plain;
	int io_uring_disabled; /* the sysctl; -1: there is none */
	int peer_pidfd;        /* SO_PEERPIDFD: 0 or negative errno */
	int pidfd_open;
	int ofd_locks; /* on a second description made by /proc */
	char socket_dir[108];
	int socket_dir_access;       /* 0, -ENOENT, -ENOTDIR, -EACCES */
	bool socket_taken;           /* somebody listens there */
	struct kvd_facts_cuda *cuda; /* NULL: no pool is on a CUDA device */
};

/* preflight_cuda.c: what the driver says; of each CUDA pool, what opening it would. */
struct kvd_facts_cuda {
	int driver; /* 0, or a negative errno, with the sentence in driver_text */
	int version;
	int devices;
	char driver_text[KVW_CUDA_ERROR_BYTES];
	struct {
		int ret; /* 0, or a negative errno, with the sentence in `text` */
		char text[KVD_CUDA_PROBLEM_BYTES];
		struct kvd_cuda_device device;
	} pools[KVW_MAX_POOLS];
};

void kvd_facts_look(const struct kvd_config *config, struct kvd_facts *out);
void kvd_facts_drop(struct kvd_facts *facts);
void kvd_facts_look_cuda(const struct kvd_config *config, struct kvd_facts *out);
int kvd_preflight_judge(const struct kvd_config *config, const struct kvd_facts *facts, FILE *out);

/* What the judges write to. */
struct kvd_report {
	const struct kvd_config *config;
	const struct kvd_facts *facts;
	FILE *out;
	int failures;
};
enum kvd_verdict { KVD_VERDICT_OK, KVD_VERDICT_NOTE, KVD_VERDICT_FAIL };

/* One line: verdict, subject, what was found, and what to change (NULL: nothing). */
void kvd_report_line(struct kvd_report *report, enum kvd_verdict verdict, const char *subject,
		     const char *change, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* preflight_memory.c */
void kvd_judge_memory(struct kvd_report *report);
/* preflight_cuda.c */
void kvd_judge_cuda(struct kvd_report *report);
/* preflight_kernel.c */
void kvd_judge_kernel(struct kvd_report *report);

#endif
