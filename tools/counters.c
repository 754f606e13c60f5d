/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of a pool. */
#include "counters.h"

#include <string.h>

void ctl_counters_read(struct kvw_bytes bytes, uint64_t out[KVW_COUNTERS])
{
	uint32_t length = bytes.length / 8 * 8;

	memset(out, 0, KVW_COUNTERS * sizeof(*out));
	if (length > KVW_COUNTERS * sizeof(*out))
		length = KVW_COUNTERS * sizeof(*out);
	if (length)
		memcpy(out, bytes.at, length);
}

const char *ctl_counter_name(enum kvw_counter counter)
{
	static const char *const names[] = {
#define X(name, help) #name,
		KVW_COUNTER_MAP(X)
#undef X
	};

	return counter < KVW_COUNTERS ? names[counter] : "?";
}
