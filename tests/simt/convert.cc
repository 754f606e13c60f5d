/* SPDX-License-Identifier: Apache-2.0 */
/* f16 as cvt.rn has it: round to nearest even, infinity past 65504, any NaN becomes 0x7fff. */
#include "simt.h"

#include <math.h>

float simt_f16_to_f32(uint16_t code)
{
	const int exponent = code >> 10 & 31;
	const int mantissa = code & 1023;
	float value;

	if (exponent == 31)
		value = mantissa ? NAN : INFINITY;
	else if (exponent)
		value = ldexpf(static_cast<float>(mantissa + 1024), exponent - 25);
	else
		value = ldexpf(static_cast<float>(mantissa), -24);
	return code & 0x8000 ? -value : value;
}

uint16_t simt_f32_to_f16(float value)
{
	const uint16_t sign = signbit(value) ? 0x8000 : 0;
	const float magnitude = fabsf(value);
	int exponent;

	if (isnan(value))
		return 0x7fff;
	if (magnitude >= 65520)
		return static_cast<uint16_t>(sign | 0x7c00);
	if (magnitude < 0x1p-14f)
		return static_cast<uint16_t>(sign | static_cast<uint16_t>(nearbyintf(magnitude * 0x1p24f)));
	exponent = ilogbf(magnitude);
	/* A mantissa that rounds up to 2048 carries into the exponent by itself. */
	return static_cast<uint16_t>(sign | (((exponent + 14) << 10) +
					     static_cast<int>(nearbyintf(ldexpf(magnitude, 10 - exponent)))));
}
