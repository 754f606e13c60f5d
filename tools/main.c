/* SPDX-License-Identifier: Apache-2.0 */
/* kvpoolctl: everything but main() is in a library, so that tests link the same code. */
#include <stdio.h>

#include "ctl.h"

int main(int argc, char **argv)
{
	int code = ctl_run(argc, argv);

	/* A full disk or a closed pipe must not look like success. */
	if (fflush(stdout) || ferror(stdout)) {
		ctl_complain("cannot write the result");
		return code ? code : CTL_FAULT;
	}
	return code;
}
