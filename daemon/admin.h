/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an administrator may ask (wire.def, types 32 and up). Each answer is bounded: lists come in pages; a
 * check or a flush is a job that runs in slices beside everything else, one at a time, and is answered when
 * it is done.
 */
#ifndef KVPOOL_DAEMON_ADMIN_H
#define KVPOOL_DAEMON_ADMIN_H

#include <stdbool.h>

#include "session.h"

int kvd_request_status(struct kvd_session *session, const struct kvw_envelope *request,
		       const union kvw_any *message);
int kvd_request_pools(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message);
int kvd_request_clients(struct kvd_session *session, const struct kvw_envelope *request,
			const union kvw_any *message);
int kvd_request_blocks(struct kvd_session *session, const struct kvw_envelope *request,
		       const union kvw_any *message);
int kvd_request_probe(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message);
int kvd_request_check(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message);
int kvd_request_flush(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message);

/* A slice of the first job. True when there is more to do. */
bool kvd_admin_jobs_work(struct kvd_server *server);
/* The session has ended: its job too. */
void kvd_admin_job_cancel(struct kvd_session *session);

/*
 * Answers with as many of `count` items as fit a message: `fill(reply, n)` sets the list's length and what
 * goes with it. Lists of long texts may not fit whole; the reader asks for the rest.
 */
typedef void (*kvd_fill_fn)(void *reply, const void *items, uint32_t n);
void kvd_admin_reply_page(struct kvd_session *session, const struct kvw_envelope *request, void *reply,
			  const void *items, uint32_t count, kvd_fill_fn fill);

#endif
