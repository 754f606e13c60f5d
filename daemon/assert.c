/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a daemon whose books are wrong: one line on stderr, then abort(), so that a core shows
 * the rest.
 */
#include "assert.h"

#include <stdio.h>
#include <stdlib.h>

void kvd_assert_failed(const char *condition, const char *file, int line, const char *function)
{
	fprintf(stderr, "kvpoold: %s:%d: %s: '%s' does not hold; the books cannot be trusted, ending\n", file,
		line, function, condition);
	abort();
}
