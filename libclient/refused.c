/* SPDX-License-Identifier: Apache-2.0 */
#include "refused.h"

#include <kvpool/error.h>
#include <kvpool/kvpool.h>

#include "ipc/shm.h"

#include "error.h"

#define ull unsigned long long

void kvc_note_refused(const struct kvw_completion *completion, uint64_t said[4])
{
	said[0] = completion->free_blocks;
	said[1] = completion->draining_blocks;
	said[2] = completion->evictable_blocks;
	said[3] = completion->limit;
}

int kvc_refused_text(int status, const char *what, const uint64_t said[4])
{
	switch (status) {
	case -KVP_ENOBLOCKS:
		return kvc_fail(status,
				"%s: the pool has %llu blocks free, %llu draining, %llu evictable, %llu were "
				"asked for: close a sequence, or make the pool larger",
				what, (ull)said[0], (ull)said[1], (ull)said[2], (ull)said[3]);
	case -KVP_EQUOTA:
		return kvc_fail(status,
				"%s: the tenant's quota of %llu blocks is used up: close a sequence, or "
				"raise quota_blocks",
				what, (ull)said[3]);
	default:
		return kvc_fail_plain(status, what);
	}
}
