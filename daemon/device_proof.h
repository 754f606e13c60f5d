/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a device is done with a session, so that its blocks may be free.
 *
 * host   The lock byte is free: no descriptor and no mapping is left, and only processes write.
 * cuda   What a process has launched runs on after it was killed, and nothing that we could ask tells of its
 *        end. So either the session has said that its work has ended and nothing is mapped (`drained` in the
 *        channel); or its process has ended (the pidfd, never the end of file: descriptors close in any
 *        order, hundreds of milliseconds before the driver has taken the device's work down), no child of it
 *        has the descriptors that keep that work alive (the lock byte), and `device_grace_ms` have passed.
 */
#ifndef KVPOOL_DAEMON_DEVICE_PROOF_H
#define KVPOOL_DAEMON_DEVICE_PROOF_H

#include <stdbool.h>
#include <stdint.h>

struct kvd_session;

/* The session is ENDING and attached; its lock byte was found free just now. */
bool kvd_device_proves_gone(const struct kvd_session *session, uint64_t now_us);
/* It has said itself that the device is done. */
bool kvd_device_drained(const struct kvd_session *session);
/* What is still missing, for one that is dead; a phrase. */
void kvd_device_waits_for(const struct kvd_session *session, char *out, uint64_t capacity);

#endif
