/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters of a pool as the daemon sends them: u64 little endian in the order of KVW_COUNTER_MAP; more
 * may follow.
 */
#ifndef KVPOOL_TOOLS_COUNTERS_H
#define KVPOOL_TOOLS_COUNTERS_H

#include <stdint.h>

#include "ipc/shm.h"
#include "ipc/wire.h"

/* All counters; what the daemon did not send is 0. */
void ctl_counters_read(struct kvw_bytes bytes, uint64_t out[KVW_COUNTERS]);
const char *ctl_counter_name(enum kvw_counter counter);

#endif
