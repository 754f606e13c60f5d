/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon has: descriptors and resident memory as the kernel tells them, sessions as it tells itself.
 * Taken before and after, so that what a client leaves behind shows.
 */
#ifndef KVPOOL_TEST_FACTS_H
#define KVPOOL_TEST_FACTS_H

#include "raw.h"

/* A sanitizer's allocator keeps freed memory for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVT_SANITIZED 1
#endif
#endif
#ifndef KVT_SANITIZED
#define KVT_SANITIZED 0
#endif
/* By how much the daemon's memory may differ after as many sessions as you like. */
#define KVT_RSS_SLACK_KIB (KVT_SANITIZED ? 16384 : 768)

struct kvt_facts {
	int fds;
	long rss_kib;
	uint32_t sessions; /* all that CLIENTS lists, ending ones too */
};

struct kvt_facts kvt_facts(const struct kvt_daemon *daemon, struct kvt_raw *admin);
uint32_t kvt_sessions(struct kvt_raw *admin);
/* Asks until there are so many; fails with what each of them waits for when that takes longer than any may. */
void kvt_wait_sessions(struct kvt_raw *admin, uint32_t sessions);
/* The same for its descriptors: those of a session that is gone are closed by the worker, a little later. */
void kvt_wait_fds(const struct kvt_daemon *daemon, int fds);
/* Until it has none of a pool but its own: one that was sent to a client is closed by the worker, after that. */
void kvt_wait_lent_fds(const struct kvt_daemon *daemon, int pools);
/* Blocks that count against the quota of this session's tenant. */
uint64_t kvt_tenant_blocks(struct kvt_raw *admin, uint64_t session);
/* Before the daemon starts: its sanitizer, if it has one, is to keep little of what was freed. */
void kvt_limit_quarantine(void);
/* Frees every unreferenced cached block: their number. */
uint64_t kvt_flush(struct kvt_raw *admin);

#endif
