/* SPDX-License-Identifier: Apache-2.0 */
/* A target with a fault that its corpus finds: shows that a replay can fail. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	if (length == 6 && !memcmp(bytes, "canary", 6))
		abort();
	return 0;
}
