/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shuffles of vf that move words within quads (128 bits) or quads within vectors, one instruction each at
 * every level: what transposing is made of. For *_loops.c files.
 */
#ifndef KVPOOL_KERNELS_QUADS_H
#define KVPOOL_KERNELS_QUADS_H

#include "simd.h"

/*
 * In each quad: a0 b0 a1 b1, a2 b2 a3 b3, a0 a1 b0 b1, a2 a3 b2 b3. Of quads: HALVES a0 a1 b0 b1, EVEN a0
 * a2 b0 b2.
 */
#if KVK_LANES == 16
#define LOW_WORDS(a, b) KVK_SHUFFLE(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define HIGH_WORDS(a, b) KVK_SHUFFLE(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define LOW_PAIRS(a, b) KVK_SHUFFLE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH_PAIRS(a, b) KVK_SHUFFLE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define QUADS(a, b, which) ((vf)_mm512_shuffle_f32x4((__m512)(a), (__m512)(b), which))
#define LOW_HALVES(a, b) QUADS(a, b, 0x44)
#define HIGH_HALVES(a, b) QUADS(a, b, 0xee)
#define EVEN_QUADS(a, b) QUADS(a, b, 0x88)
#define ODD_QUADS(a, b) QUADS(a, b, 0xdd)
#elif KVK_LANES == 8
#define LOW_HALVES(a, b) KVK_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH_HALVES(a, b) KVK_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define LOW_WORDS(a, b) KVK_SHUFFLE(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH_WORDS(a, b) KVK_SHUFFLE(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW_PAIRS(a, b) KVK_SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH_PAIRS(a, b) KVK_SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#else
#define LOW_WORDS(a, b) KVK_SHUFFLE(a, b, 0, 4, 1, 5)
#define HIGH_WORDS(a, b) KVK_SHUFFLE(a, b, 2, 6, 3, 7)
#define LOW_PAIRS(a, b) KVK_SHUFFLE(a, b, 0, 1, 4, 5)
#define HIGH_PAIRS(a, b) KVK_SHUFFLE(a, b, 2, 3, 6, 7)
#endif

/* 32-bit words at any address. */
typedef uint32_t vu_unaligned __attribute__((vector_size(KVK_LANES * 4), aligned(1), may_alias));

#endif
