/* SPDX-License-Identifier: Apache-2.0 */
/* At the process's end: what it did not give back. */
#include "fake.h"

#include <stdio.h>
#include <unistd.h>

static const char *const texts[FAKE_KINDS] = {
#define FAKE_KIND(name, text) text,
	FAKE_KIND_MAP(FAKE_KIND)
#undef FAKE_KIND
};

__attribute__((destructor)) static void report(void)
{
	const struct fake_process *self;

	if (!fake_settings()->report)
		return;
	self = fake_self();
	if (self->pid != getpid())
		return;
	for (unsigned i = 0; i < FAKE_KINDS; i++)
		if (self->live[i])
			fprintf(stderr, "fakecuda: process %d leaves %lld x %s\n", (int)self->pid,
				(long long)self->live[i], texts[i]);
}
