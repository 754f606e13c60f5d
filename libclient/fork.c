/* SPDX-License-Identifier: Apache-2.0 */
#include "fork.h"

#include <errno.h>
#include <sys/mman.h>

#include "client.h"
#include "error.h"

int kvc_mark_create(struct kvc_mark **out)
{
	struct kvc_mark *mark =
		mmap(NULL, KVW_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mark == MAP_FAILED)
		return kvc_fail_plain(errno, "a page that is wiped by fork()");
	if (madvise(mark, KVW_PAGE_BYTES, MADV_WIPEONFORK)) {
		int error = errno;

		munmap(mark, KVW_PAGE_BYTES);
		return kvc_fail(error, "MADV_WIPEONFORK is refused: this library needs Linux 4.14");
	}
	atomic_init(&mark->alive, 1);
	*out = mark;
	return 0;
}

void kvc_mark_destroy(struct kvc_mark *mark)
{
	munmap(mark, KVW_PAGE_BYTES);
}
