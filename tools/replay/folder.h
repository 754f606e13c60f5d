/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private folder for a daemon's socket and log, in $XDG_RUNTIME_DIR, $TMPDIR or /tmp. Who was killed can't remove its own: so
 * the folder is locked (flock) while it is used, the kernel unlocks it however its owner ends, and the next one removes what
 * nobody has locked. Process ids would not tell: containers share a folder but not their numbers.
 */
#ifndef KVPOOL_TOOLS_REPLAY_FOLDER_H
#define KVPOOL_TOOLS_REPLAY_FOLDER_H

#include <stddef.h>

#define REP_FOLDER_BYTES 64u

struct rep_folder {
	char path[REP_FOLDER_BYTES];
	int fd; /* holds the lock */
};

/* Removes what others left, then makes one. 0 or a negative errno, with the path that was tried in out->path. */
int rep_folder_make(struct rep_folder *out);
/* With the files in it. */
void rep_folder_remove(struct rep_folder *folder);

#endif
