/* SPDX-License-Identifier: Apache-2.0 */
/* Counting by syscall user dispatch; see syscalls.h. */
#ifndef KVPOOL_TOOLS_REPLAY_DISPATCH_H
#define KVPOOL_TOOLS_REPLAY_DISPATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the kernel has it. */
bool rep_dispatch_works(void);
int rep_dispatch_init(void);
void rep_dispatch_switch(bool counting);
void rep_dispatch_reset(void);
uint64_t rep_dispatch_count(void);

#endif
