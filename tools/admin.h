/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection for the administration verbs: hello, then one request after the other. It attaches to nothing
 * and maps nothing. Failures are told on standard error, once, where they are seen.
 */
#ifndef KVPOOL_TOOLS_ADMIN_H
#define KVPOOL_TOOLS_ADMIN_H

#include <stdbool.h>
#include <stdint.h>

#include "ctl.h"
#include "ipc/wire.h"

struct ctl_admin;

/* Connects and greets. 0 or a negative error, told. */
int ctl_admin_open(const struct ctl_global *global, struct ctl_admin **out);
void ctl_admin_close(struct ctl_admin *admin);
/* Whether the daemon lets this user administer it. */
bool ctl_admin_is_admin(const struct ctl_admin *admin);

/*
 * Sends `type` and waits for its answer (type + 1). Text and lists in *reply point into the connection's
 * buffer: valid until the next call. 0 or a negative error, told.
 */
int ctl_admin_call(struct ctl_admin *admin, uint32_t type, const void *message, union kvw_any *reply);

/* The same for a request about `pool`; when it is NULL and there are several, how to name one is told too. */
int ctl_admin_call_on(struct ctl_admin *admin, const char *pool, uint32_t type, const void *message,
		      union kvw_any *reply);

/*
 * Opens, asks once, and hands the answer to `show`, which prints it and returns the exit code; CTL_DAEMON when
 * there is none.
 */
int ctl_admin_show(const struct ctl_global *global, uint32_t type, const void *message,
		   int (*show)(const union kvw_any *reply, bool json));

#endif
