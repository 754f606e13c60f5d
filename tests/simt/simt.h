/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels/cuda/ptx.h calls where nvcc would get an instruction. Kernels see none of it. Whatever
 * several threads do together takes the place in the source it is called from.
 */
#ifndef KVPOOL_TEST_SIMT_H
#define KVPOOL_TEST_SIMT_H

#include "machine.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

void simt_block_sync(const char *file, int line);
void simt_warp_sync(const char *file, int line);
uint32_t simt_shuffle(uint32_t value, uint32_t from, const char *file, int line);
uint32_t simt_shuffle_xor(uint32_t value, uint32_t mask, const char *file, int line);
uint32_t simt_ballot(bool predicate, const char *file, int line);

/* The block's dynamic shared memory, which must have at least `bytes`. */
void *simt_shared(size_t bytes);

void simt_copy16(void *to, const void *from, bool live);
void simt_copy_commit(void);
void simt_copy_wait(uint32_t pending_groups);

/* One to four 8 x 8 matrices of halves, a register each. */
void simt_load_matrices(uint32_t *result, uint32_t count, const void *row, bool transposed, const char *file,
			int line);
/* c += a b */
void simt_mma_bf16(float *c, const uint32_t *a, const uint32_t *b, const char *file, int line);
void simt_mma_f16(float *c, const uint32_t *a, const uint32_t *b, const char *file, int line);

/* A warpgroup's products: see group.cc. c: 4 floats for each 8 columns. */
void simt_group_begin(const char *file, int line);
void simt_group_wait(const char *file, int line);
void simt_group_mma(float *c, uint32_t columns, uint64_t a, uint64_t b, bool b_by_rows, bool add,
		    float (*widen)(uint16_t code), const char *file, int line);
void simt_shared_fence(void);
/* Whether these bytes are the block's shared memory. */
bool simt_is_shared(const void *at, uint64_t bytes);
/* This thread wrote there; it may be shared memory. */
void simt_shared_written(const void *to);
uint32_t simt_shared_offset(const void *at);

/* See box.cc. */
void simt_phase_init(uint64_t *phase, uint32_t arrivals);
void simt_phase_expect(uint64_t *phase, uint32_t bytes);
void simt_phase_wait(uint64_t *phase, uint32_t parity, const char *file, int line);
void simt_box_load(void *to, const void *map, int32_t column, int32_t token, int32_t page, uint64_t *phase);

void simt_misaligned(const void *address, size_t alignment, const char *what);

static inline uint32_t simt_thread_index(void)
{
	return simt_machine_now->current->index;
}

static inline uint32_t simt_lane(void)
{
	return simt_thread_index() % SIMT_LANES;
}

static inline float simt_f32_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t simt_f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float simt_bf16_to_f32(uint16_t code)
{
	return simt_f32_from_bits(static_cast<uint32_t>(code) << 16);
}

/* To nearest even; any NaN becomes 0x7fff, as the instruction has it. */
static inline uint16_t simt_f32_to_bf16(float value)
{
	const uint32_t bits = simt_f32_bits(value);

	if (value != value)
		return 0x7fff;
	return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* 16 products, added up in the one order that all of the model's matrix units have. */
float simt_dot16(const float *a, const float *b);

float simt_f16_to_f32(uint16_t code);
uint16_t simt_f32_to_f16(float value);

template <uint32_t N>
static inline void simt_group_mma_bf16(float (&c)[N][4], uint32_t columns, uint64_t a, uint64_t b,
				       bool b_by_rows, bool add, const char *file, int line)
{
	static_assert(N <= 32, "a warpgroup's product has at most 256 columns");
	simt_group_mma(c[0], columns, a, b, b_by_rows, add, simt_bf16_to_f32, file, line);
}

template <uint32_t N>
static inline void simt_group_mma_f16(float (&c)[N][4], uint32_t columns, uint64_t a, uint64_t b,
				      bool b_by_rows, bool add, const char *file, int line)
{
	static_assert(N <= 32, "a warpgroup's product has at most 256 columns");
	simt_group_mma(c[0], columns, a, b, b_by_rows, add, simt_f16_to_f32, file, line);
}

#endif
