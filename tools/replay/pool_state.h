/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon says of the replayed pool, before and after. */
#ifndef KVPOOL_TOOLS_REPLAY_POOL_STATE_H
#define KVPOOL_TOOLS_REPLAY_POOL_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "../ctl.h"
#include "ipc/shm.h"

struct rep_pool_state {
	bool counted; /* false: the daemon gave the geometry alone, because this user may not administer it */
	char name[KVW_MAX_NAME_BYTES + 1];
	char memory[KVW_MAX_NAME_BYTES + 1];
	char policy[KVW_MAX_NAME_BYTES + 1];
	char event_loop[KVW_MAX_NAME_BYTES + 1];
	uint64_t blocks;
	uint64_t block_tokens;
	uint64_t bytes;
	uint64_t populated_bytes;
	uint32_t kv_planes;               /* all but opaque ones */
	bool has_latent;                  /* one that attention can run over */
	char off[KVW_MAX_TEXT_BYTES + 1]; /* what the daemon does without on this machine */
	uint64_t engines;
	uint64_t leased;
	uint64_t draining;
	uint64_t waiting; /* frozen or quarantined */
	uint64_t longest_turn_us;
	uint64_t counters[KVW_COUNTERS];
};

/* Pool `name`, NULL: the only one. 0 or a negative error, told. */
int rep_pool_state_read(const struct ctl_global *global, const char *name, struct rep_pool_state *out);
/* Engines of it that ended, and of which nothing is left. */
uint64_t rep_pool_state_over(const struct rep_pool_state *state);
/*
 * The same once no more engines are attached than `before` and, with none, `ended` more are over and nothing
 * is leased or waits; or as it is after the global timeout.
 */
int rep_pool_state_settle(const struct ctl_global *global, const char *name,
			  const struct rep_pool_state *before, uint32_t ended, struct rep_pool_state *out);

#endif
