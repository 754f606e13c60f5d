/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay without bytes: how often the daemon's index hits under its policy. One engine, requests in file
 * order and one at a time; each trace id, a partial last one too, is one full block hashed from its id; a
 * longer request keeps its first `blocks` blocks. Everything goes through the same open, publish and release
 * as in any engine.
 */
#ifndef KVPOOL_TOOLS_REPLAY_METADATA_H
#define KVPOOL_TOOLS_REPLAY_METADATA_H

#include "run.h"

/* Results go to run->shared->stats[0]. 0, or a negative error, told on standard error. */
int rep_metadata_run(const struct rep_run *run);

#endif
