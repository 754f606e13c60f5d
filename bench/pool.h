/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as a pool has it: on huge pages where they are to be had, full of random values, used in random order. */
#ifndef KVPOOL_BENCH_POOL_H
#define KVPOOL_BENCH_POOL_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed, aligned to 2 MiB, kept until the program ends, which this ends when there is none. */
void *bench_memory(size_t bytes);

/* The same, filled with random bf16 in +-[1/8, 2); `bytes` a multiple of 8. */
void *bench_bf16(size_t bytes);
/* The same, [rows] of KVK_MLA_FP8. */
void *bench_fp8_rows(size_t rows);

/* 0 to count - 1 in random order. */
int32_t *bench_shuffle(int32_t count);

/* Uniform in [0, bound), always the same sequence. */
uint32_t bench_random(uint32_t bound);

#endif
