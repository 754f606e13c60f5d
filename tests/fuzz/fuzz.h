/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz target gives to libFuzzer, and to replay_main.c in builds without it. */
#ifndef KVPOOL_TEST_FUZZ_H
#define KVPOOL_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Aborts when something that must hold does not. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

#endif
