/* SPDX-License-Identifier: Apache-2.0 */
#include "measure.h"

#include <math.h>
#include <string.h>

static bool same_special(float got, float want)
{
	if (isnan(want))
		return isnan(got);
	return isinf(want) ? got == want : isfinite(got);
}

static double row_error(const float *got, const float *want, int64_t width)
{
	double largest = 0;
	double error = 0;

	for (int64_t i = 0; i < width; i++) {
		if (!same_special(got[i], want[i]))
			return INFINITY;
		largest = fmax(largest, fabs((double)want[i]));
		error = fmax(error, fabs((double)got[i] - want[i]));
	}
	if (largest == 0)
		return error == 0 ? 0 : INFINITY;
	return error / largest;
}

struct measure measure_rows(const float *got, const float *want, int64_t rows, int64_t width, double limit)
{
	double error = 0;

	for (int64_t r = 0; r < rows; r++)
		error = fmax(error, row_error(got + r * width, want + r * width, width));
	return (struct measure){.error = error, .limit = limit, .pass = error <= limit};
}

struct measure measure_values(const float *got, const float *want, int64_t count)
{
	double error = 0;

	for (int64_t i = 0; i < count; i++) {
		if (!same_special(got[i], want[i]))
			error = INFINITY;
		else if (isfinite(want[i]))
			error = fmax(error, fabs((double)got[i] - want[i]) / (1e-5 + 1e-5 * fabs(want[i])));
	}
	return (struct measure){.error = error, .limit = 1, .pass = error <= 1};
}

static float widen(uint16_t bf16)
{
	uint32_t bits = (uint32_t)bf16 << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

struct measure measure_bf16(const uint16_t *got, const float *want, int64_t count)
{
	double products = 0;
	double squares = 0;
	bool close = true;
	double cosine;

	for (int64_t i = 0; i < count; i++) {
		double x = widen(got[i]);
		double y = want[i];
		double error = fabs(x - y);

		close = close && isfinite(x) && (error < 8e-4 || error < 2.01 / 128 * fabs(y));
		products += x * y;
		squares += x * x + y * y;
	}
	cosine = squares > 0 ? 1 - 2 * products / squares : 0;
	return (struct measure){.error = cosine, .limit = 5e-6, .pass = close && cosine <= 5e-6};
}

struct measure measure_equal(const int32_t *got, const int32_t *want, int64_t count)
{
	double wrong = 0;

	for (int64_t i = 0; i < count; i++)
		wrong += got[i] != want[i];
	return (struct measure){.error = wrong, .limit = 0, .pass = wrong == 0};
}
