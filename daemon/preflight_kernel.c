/* SPDX-License-Identifier: Apache-2.0 */
/* --check of the kernel: what the loop waits on, and what proves that a client is gone. */
#include "preflight_internal.h"

#include <errno.h>
#include <string.h>

/* Rings of the default sizes were refused below this on current kernels, although the manual says the limit is no longer looked at. */
#define SMALL_MEMLOCK_BYTES (8ull << 20)

static const char *io_uring_change(const struct kvd_facts *facts, int error)
{
	if (facts->io_uring_disabled > 0)
		return "sysctl kernel.io_uring_disabled=0";
	if (error == -ENOMEM)
		return "LimitMEMLOCK=infinity (or ulimit -l unlimited)";
	return "allow io_uring_setup in the container's seccomp profile; event_loop = epoll serves as well";
}

static void judge_io_uring(struct kvd_report *report)
{
	const struct kvd_facts *facts = report->facts;
	enum kvd_loop_backend wanted = report->config->event_loop;
	int error = wanted == KVD_LOOP_IO_URING_PLAIN ? facts->io_uring_plain : facts->io_uring_defer;
	enum kvd_verdict verdict = wanted == KVD_LOOP_AUTO ? KVD_VERDICT_NOTE : KVD_VERDICT_FAIL;

	if (wanted == KVD_LOOP_EPOLL)
		kvd_report_line(report, KVD_VERDICT_OK, "event loop", NULL, "epoll, as configured");
	else if (!error)
		kvd_report_line(report, KVD_VERDICT_OK, "event loop", NULL, "%s is granted",
				wanted == KVD_LOOP_IO_URING_PLAIN ? "plain io_uring" : "io_uring");
	else if (wanted == KVD_LOOP_AUTO && !facts->io_uring_plain)
		kvd_report_line(report, KVD_VERDICT_NOTE, "event loop", "Linux 6.1 or newer",
				"io_uring without DEFER_TASKRUN is used: %s", strerror(-error));
	else
		kvd_report_line(report, verdict, "event loop", io_uring_change(facts, error),
				"io_uring is refused: %s%s", strerror(-error),
				wanted == KVD_LOOP_AUTO ? "; epoll is used" : "");
}

static void judge_memlock(struct kvd_report *report)
{
	uint64_t limit = report->facts->locked.rlim_cur;
	char text[32];

	if (limit == RLIM_INFINITY) {
		kvd_report_line(report, KVD_VERDICT_OK, "locked memory", NULL, "no limit");
		return;
	}
	kvd_format_bytes(limit, text, sizeof(text));
	if (limit >= SMALL_MEMLOCK_BYTES || report->config->event_loop == KVD_LOOP_EPOLL)
		kvd_report_line(report, KVD_VERDICT_OK, "locked memory", NULL, "limit %s", text);
	else
		kvd_report_line(report, KVD_VERDICT_NOTE, "locked memory",
				"LimitMEMLOCK=infinity (or ulimit -l unlimited)",
				"limit %s: the kernel may refuse io_uring", text);
}

static void judge_proofs(struct kvd_report *report)
{
	const struct kvd_facts *facts = report->facts;

	if (!facts->peer_pidfd)
		kvd_report_line(report, KVD_VERDICT_OK, "clients' ends", NULL, "SO_PEERPIDFD names the peer");
	else if (!facts->pidfd_open)
		kvd_report_line(report, KVD_VERDICT_NOTE, "clients' ends", "Linux 6.5 or newer",
				"no SO_PEERPIDFD (%s): pidfd_open is used", strerror(-facts->peer_pidfd));
	else
		kvd_report_line(report, KVD_VERDICT_NOTE, "clients' ends",
				"allow pidfd_open in the container's seccomp profile",
				"no pidfd (%s): a dead client is noticed by its locks alone",
				strerror(-facts->pidfd_open));
	if (!facts->ofd_locks)
		kvd_report_line(report, KVD_VERDICT_OK, "proof of gone", NULL, "OFD locks on memfds work");
	else
		kvd_report_line(report, KVD_VERDICT_FAIL, "proof of gone", "mount /proc, Linux 3.17 or newer",
				"OFD locks on a memfd opened again don't work: %s",
				strerror(-facts->ofd_locks));
}

void kvd_judge_kernel(struct kvd_report *report)
{
	judge_io_uring(report);
	judge_memlock(report);
	judge_proofs(report);
}
