/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling a service manager how we do, by its datagram protocol: $NOTIFY_SOCKET names a socket (a leading '@'
 * stands for the zero byte of an abstract name), a message is lines of KEY=VALUE. Nothing of a library's is
 * needed for that.
 */
#ifndef KVPOOL_DAEMON_NOTIFY_H
#define KVPOOL_DAEMON_NOTIFY_H

/* "READY=1" or "STOPPING=1". 0, also when nobody is to be told; else a negative errno. Does not wait. */
int kvd_notify(const char *state);

#endif
