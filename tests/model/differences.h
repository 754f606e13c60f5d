/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the daemon's books are known to differ from their headers. Each is 1 until it is repaired there;
 * with 0 the model insists on what the header says.
 */
#ifndef KVPOOL_TEST_DIFFERENCES_H
#define KVPOOL_TEST_DIFFERENCES_H

/*
 * ipc/shm.h: a bucket without an empty entry says "ask the daemon". A block that was left out of a full
 * bucket stays left out when another leaves that bucket, and then clients read that it is not there.
 */
#define DIFFERS_LEFT_OUT_OF_BUCKET 0
/*
 * ipc/shm.h: orphaned_blocks are those made unfindable while referenced. Unreferenced pending blocks are
 * counted as well.
 */
#define DIFFERS_ORPHANED_BLOCKS 0
/*
 * ipc/shm.h: quota_refusals are all requests refused by a quota. A publish that is refused by one is not
 * counted.
 */
#define DIFFERS_QUOTA_REFUSALS 0

#endif
