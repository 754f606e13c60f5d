/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing with a sentence: the text is the thread's own, so that no lock and no handle is needed to read it.
 */
#ifndef KVPOOL_LIBCLIENT_ERROR_H
#define KVPOOL_LIBCLIENT_ERROR_H

/* Sets this thread's last error text and returns -|error|. The text names the thing, the value, the limit and the remedy. */
int kvc_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with the error's own text behind `what`. */
int kvc_fail_plain(int error, const char *what);

#endif
