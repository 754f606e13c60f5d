/* SPDX-License-Identifier: Apache-2.0 */
/* A test that needs a CUDA device ends as skipped without one, and says why in one sentence. */
#ifndef KVPOOL_TEST_GPU_REAL_DEVICE_H
#define KVPOOL_TEST_GPU_REAL_DEVICE_H

#include "ipc/cuda_driver.h"

/* The driver, open; ends the program with 77 where there is no device. */
struct kvw_cuda *gpu_open_or_skip(void);
/* A device that can't be used is no reason to skip: ends the program with 1. */
_Noreturn void gpu_give_up(const char *why);

#endif
