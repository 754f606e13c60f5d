/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forked children. Every mapping is MADV_DONTFORK, so a child that touched one would crash; each call therefore first reads a word
 * on a page that the kernel wipes in the child. No getpid(), no pthread_atfork().
 */
#ifndef KVPOOL_LIBCLIENT_FORK_H
#define KVPOOL_LIBCLIENT_FORK_H

struct kvc_mark;

int kvc_mark_create(struct kvc_mark **out);
void kvc_mark_destroy(struct kvc_mark *mark);

#endif
