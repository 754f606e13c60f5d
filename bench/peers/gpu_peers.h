/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What others make of dense MLA decode on the same GPU, where python3 has them: PyTorch's own attention behind a gather,
 * FlashMLA, FlashInfer. One that is not there has lines without a value.
 */
#ifndef KVPOOL_BENCH_GPU_PEERS_H
#define KVPOOL_BENCH_GPU_PEERS_H

#include "../ratio.h"

void bench_gpu_peers(struct bench_lines *lines);

#endif
