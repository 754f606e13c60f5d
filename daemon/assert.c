/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a daemon whose books are wrong: one line in the log, then abort(), so that a core shows
 * the rest.
 */
#include "assert.h"

#include <stdlib.h>

#include "log.h"

void kvd_assert_failed(const char *condition, const char *file, int line, const char *function)
{
	kvd_log_last("%s:%d: %s: '%s' does not hold; the books cannot be trusted, ending", file, line,
		     function, condition);
	abort();
}
