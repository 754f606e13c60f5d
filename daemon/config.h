/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kvpoold is told: an INI file (inih), and the command line over it. One table names every key with its section, type, limits,
 * default and one line of help; --help, kvpoold.conf(5) and the tests are held against it.
 */
#ifndef KVPOOL_DAEMON_CONFIG_H
#define KVPOOL_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "ipc/geometry.h"
#include "ipc/limits.h"

#include "loop.h"

enum kvd_pages { KVD_PAGES_AUTO, KVD_PAGES_HUGETLB, KVD_PAGES_THP, KVD_PAGES_4K };
/* How the processes of a CUDA pool get at its memory. */
enum kvd_share { KVD_SHARE_AUTO, KVD_SHARE_IPC, KVD_SHARE_FD };

struct kvd_pool_config {
	char name[KVW_MAX_NAME_BYTES + 1];
	struct kvw_geometry geometry; /* declared and placed; `blocks` includes null and sink blocks */
	uint32_t data_blocks;         /* key blocks */
	uint32_t max_engines;         /* sink blocks */
	uint64_t quota_blocks;        /* a tenant's; UINT64_MAX: none */
	uint64_t tables_limit_bytes;  /* of one engine */
	enum kvd_pages pages;
	char policy[KVW_MAX_NAME_BYTES + 1];
	char device[KVW_MAX_NAME_BYTES + 1]; /* "host", "cuda:0", "cuda:GPU-...", "cuda:0000:19:00.0" */
	/* CUDA pools: */
	enum kvd_share share;
	uint32_t device_grace_ms; /* between a process's end and its blocks' */
	uint32_t allow_mps;       /* the daemon's */
};

/* Whether its memory is a CUDA device's. */
bool kvd_pool_config_is_cuda(const struct kvd_pool_config *pool);

#define KVD_MAX_ADMINS 32u

struct kvd_config {
	char socket[108]; /* sun_path */
	mode_t socket_mode;
	gid_t socket_group; /* (gid_t)-1: leave */
	enum kvd_loop_backend event_loop;
	uint32_t poll_ms;
	uint32_t stop_timeout_ms;
	uint32_t max_sessions;
	uint32_t log_level; /* enum kvd_log_level */
	uint32_t allow_mps; /* of CUDA pools */
	uid_t admins
		[KVD_MAX_ADMINS]; /* may use the administration verbs, besides root and the daemon's own uid */
	uint32_t admin_count;
	bool check_only; /* --check */
	bool help;       /* --help was printed; end with 0 */
	bool version;    /* --version was printed; end with 0 */
	int ready_fd;    /* --ready-fd: gets "ready\n" when clients can connect; -1: none */
	char *file;      /* that was read; NULL: none */
	struct kvd_pool_config *pools;
	uint32_t pool_count;
};

#define KVD_DEFAULT_CONFIG "/etc/kvpool/kvpoold.conf"

/*
 * argv over the file over the defaults. The default file may be missing when argv makes a pool. 0; or a negative errno with one clear sentence (file, line, key, value, limit, remedy) in
 * error[capacity], 512 bytes at least. On success free with kvd_config_free().
 */
int kvd_config_load(int argc, char **argv, struct kvd_config *out, char *error, size_t capacity);
void kvd_config_free(struct kvd_config *config);

/* Every key, one a line: section, key, default, range and help, separated by tabs. Tests hold the manual page against it. */
void kvd_config_print_keys(FILE *out);

#endif
