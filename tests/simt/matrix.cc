/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ldmatrix and mma m16n8k16, after the fragment tables of the PTX manual. With group = lane / 4 and t =
 * lane % 4:
 *
 *	A (16 x 16), register i, half h:	row group + 8 * (i & 1),	column 2 t + h + 8 * (i >> 1)
 *	B (16 x 8),  register i, half h:	row 2 t + h + 8 i,		column group
 *	C (16 x 8),  register i:		row group + 8 * (i >> 1),	column 2 t + (i & 1)
 *
 * A matrix that ldmatrix loads has eight rows of eight halves: register i of a lane holds row group,
 * columns 2 t and 2 t + 1 of matrix i; transposed, rows 2 t and 2 t + 1 of column group.
 */
#include "machine.h"
#include "simt.h"

#include <string.h>

struct matrix_load {
	uint16_t row[8]; /* the one this lane addresses */
	uint32_t *result;
	uint32_t count;
};

static void load_all(void *const *lanes)
{
	for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
		struct matrix_load *to = static_cast<struct matrix_load *>(lanes[lane]);

		for (uint32_t i = 0; i < to->count; i++) {
			const uint16_t *row = static_cast<struct matrix_load *>(lanes[8 * i + lane / 4])->row;

			to->result[i] = row[lane % 4 * 2] | static_cast<uint32_t>(row[lane % 4 * 2 + 1])
								    << 16;
		}
	}
}

static void load_all_transposed(void *const *lanes)
{
	for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
		struct matrix_load *to = static_cast<struct matrix_load *>(lanes[lane]);

		for (uint32_t i = 0; i < to->count; i++) {
			const uint32_t first = 8 * i + lane % 4 * 2;
			const uint16_t low = static_cast<struct matrix_load *>(lanes[first])->row[lane / 4];
			const uint16_t high =
				static_cast<struct matrix_load *>(lanes[first + 1])->row[lane / 4];

			to->result[i] = low | static_cast<uint32_t>(high) << 16;
		}
	}
}

void simt_load_matrices(uint32_t *result, uint32_t count, const void *row, bool transposed, const char *file,
			int line)
{
	struct matrix_load arguments = {{}, result, count};

	if (reinterpret_cast<uintptr_t>(row) % 16)
		simt_misaligned(row, 16, "ldmatrix");
	if (simt_lane() < 8 * count)
		memcpy(arguments.row, row, sizeof(arguments.row));
	simt_meet(transposed ? load_all_transposed : load_all, &arguments, {file, line}, "ldmatrix");
}

struct product {
	float *c;
	const uint32_t *a; /* [4] */
	const uint32_t *b; /* [2] */
};

typedef float widen_fn(uint16_t code);

/* Both operands as plain matrices; B transposed, so that the inner loop runs along both. */
template <widen_fn *widen> static void unpack(void *const *lanes, float (*a)[16], float (*b)[16])
{
	for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
		const struct product *p = static_cast<struct product *>(lanes[lane]);
		const uint32_t group = lane / 4;

		for (uint32_t i = 0; i < 4; i++)
			for (uint32_t h = 0; h < 2; h++)
				a[group + 8 * (i & 1)][lane % 4 * 2 + h + 8 * (i >> 1)] =
					widen(static_cast<uint16_t>(p->a[i] >> 16 * h));
		for (uint32_t i = 0; i < 2; i++)
			for (uint32_t h = 0; h < 2; h++)
				b[group][lane % 4 * 2 + h + 8 * i] =
					widen(static_cast<uint16_t>(p->b[i] >> 16 * h));
	}
}

float simt_dot16(const float *a, const float *b)
{
	float sum[4] = {};

	for (uint32_t k = 0; k < 16; k += 4)
		for (uint32_t i = 0; i < 4; i++)
			sum[i] += a[k + i] * b[k + i];
	return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <widen_fn *widen> static void multiply(void *const *lanes)
{
	float a[16][16];
	float b[8][16];

	unpack<widen>(lanes, a, b);
	for (uint32_t lane = 0; lane < SIMT_LANES; lane++) {
		const struct product *p = static_cast<struct product *>(lanes[lane]);

		for (uint32_t i = 0; i < 4; i++)
			p->c[i] += simt_dot16(a[lane / 4 + 8 * (i >> 1)], b[lane % 4 * 2 + (i & 1)]);
	}
}

void simt_mma_bf16(float *c, const uint32_t *a, const uint32_t *b, const char *file, int line)
{
	struct product arguments = {c, a, b};

	simt_meet(multiply<simt_bf16_to_f32>, &arguments, {file, line}, "mma");
}

void simt_mma_f16(float *c, const uint32_t *a, const uint32_t *b, const char *file, int line)
{
	struct product arguments = {c, a, b};

	simt_meet(multiply<simt_f16_to_f32>, &arguments, {file, line}, "mma");
}
