/* SPDX-License-Identifier: Apache-2.0 */
/* What is about to run, on standard error before it runs: pool, daemon, trace, work. */
#ifndef KVPOOL_TOOLS_REPLAY_HEADING_H
#define KVPOOL_TOOLS_REPLAY_HEADING_H

#include <stdio.h>

#include "pool_state.h"
#include "run.h"

void rep_heading(const struct rep_run *run, const struct rep_pool_state *pool);

/* `text` behind `label`, broken at spaces into lines of at most 80 columns where words allow it. */
void rep_heading_wrap(const char *label, const char *text, FILE *out);

#endif
