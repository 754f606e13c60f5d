/* SPDX-License-Identifier: Apache-2.0 */
#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "foe.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define POOL(name)                                                                                           \
	"--set=pool." name ".block_tokens=16", "--set=pool." name ".planes=k f16 1x128",                     \
		"--set=pool." name ".pages=4k"

static _Noreturn void become_target(const struct kvt_daemon *daemon, int ready_fd)
{
	const struct rlimit descriptors = {KVT_TARGET_DESCRIPTORS, KVT_TARGET_DESCRIPTORS};
	int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	char socket[176];
	char event_loop[64];
	char ready[32];

	snprintf(socket, sizeof(socket), "--socket=%s", daemon->socket);
	snprintf(event_loop, sizeof(event_loop), "--event-loop=%s", kvt_lane);
	snprintf(ready, sizeof(ready), "--ready-fd=%d", ready_fd);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	fcntl(ready_fd, F_SETFD, 0);
	if (log >= 0 && !setrlimit(RLIMIT_NOFILE, &descriptors) && dup2(log, STDERR_FILENO) >= 0)
		execl(KVT_KVPOOLD, KVT_KVPOOLD, "--config=/dev/null", socket, event_loop, ready,
		      "--socket-mode=0666", "--max-sessions=" TEXT(KVT_TARGET_SESSIONS),
		      "--set=pool." KVT_FRIEND_POOL ".blocks=512", POOL(KVT_FRIEND_POOL),
		      "--set=pool." KVT_FOE_POOL ".blocks=" TEXT(KVT_FOE_BLOCKS), POOL(KVT_FOE_POOL),
		      "--set=pool." KVT_FOE_POOL ".quota_blocks=" TEXT(KVT_FOE_QUOTA), NULL);
	_exit(127);
}

struct kvt_daemon *kvt_target_start(void)
{
	struct kvt_daemon *daemon = calloc(1, sizeof(*daemon));
	int ends[2];

	assert_non_null(daemon);
	daemon->dir = kvt_mkdtemp();
	/* The hostile client is another user. */
	assert_return_code(chmod(daemon->dir, 0711), errno);
	snprintf(daemon->socket, sizeof(daemon->socket), "%s/sock", daemon->dir);
	snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->dir);
	assert_return_code(pipe2(ends, O_CLOEXEC), errno);
	daemon->pid = fork();
	assert_true(daemon->pid >= 0);
	if (!daemon->pid)
		become_target(daemon, ends[1]);
	close(ends[1]);
	daemon->ready_fd = ends[0];
	kvt_daemon_wait_ready(daemon);
	return daemon;
}

/* -------------------------------------------------------------- the log */

#define MOST_SESSIONS (1u << 22)
enum seen { SEEN_ATTACHED = 1, SEEN_ENDED = 2 };

static void audit_line(const char *line, uint8_t *seen, struct kvt_log_audit *audit)
{
	const char *at = strstr(line, "session ");
	const char *revoked = strstr(line, " is revoked: ");
	const char *ended = strstr(line, " has ended: ");
	const char *end = revoked ? revoked : ended;
	const char *left_out = strstr(line, " lines about clients left out");
	uint64_t id;

	if (left_out) {
		while (left_out > line && left_out[-1] != ' ')
			left_out--;
		audit->left_out += strtoull(left_out, NULL, 10);
	}
	if (!at || sscanf(at, "session %" SCNu64 ":", &id) != 1 || id >= MOST_SESSIONS)
		return;
	if (strstr(line, " is engine ")) {
		seen[id] |= SEEN_ATTACHED;
		audit->attached++;
	}
	if (!end)
		return;
	audit->revoked += revoked != NULL;
	audit->without_reason += strlen(strchr(end, ':')) < 5;
	audit->twice += (seen[id] & SEEN_ENDED) != 0;
	audit->ended += (seen[id] & SEEN_ATTACHED) != 0;
	seen[id] |= SEEN_ENDED;
}

struct kvt_log_audit kvt_target_audit(const struct kvt_daemon *daemon)
{
	struct kvt_log_audit audit = {0};
	uint8_t *seen = calloc(1, MOST_SESSIONS);
	FILE *file = fopen(daemon->log, "re");
	char line[2048];

	assert_non_null(seen);
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		audit.bytes += strlen(line);
		audit_line(line, seen, &audit);
	}
	fclose(file);
	free(seen);
	return audit;
}
