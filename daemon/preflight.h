/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoold --check: looks at what the configuration needs (memory, cgroup, descriptors, huge pages, io_uring, memlock) and says for
 * each what it found and what to change. Nothing is created.
 */
#ifndef KVPOOL_DAEMON_PREFLIGHT_H
#define KVPOOL_DAEMON_PREFLIGHT_H

#include <stdio.h>

#include "config.h"

/* Prints one line a finding to `out`. Returns the number of findings that would keep the daemon from starting. */
int kvd_preflight(const struct kvd_config *config, FILE *out);

/*
 * Raises the soft limit of descriptors to what max_sessions takes, as far as the hard one lets it, and has the kernel make its
 * table for them; when that is not enough the log says what to change. Call before the first thread is started.
 */
void kvd_preflight_raise_descriptors(const struct kvd_config *config);

#endif
