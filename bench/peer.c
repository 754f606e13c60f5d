/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"

static void run_script(const int to[2], const int from[2], const char *script, const char *argument)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(to[0], STDIN_FILENO);
	dup2(from[1], STDOUT_FILENO);
	close(to[0]);
	close(to[1]);
	close(from[0]);
	close(from[1]);
	execl(PYTHON, PYTHON, script, argument, (char *)NULL);
	_exit(127);
}

void bench_peer_start(struct bench_peer *peer, const char *script, const char *argument)
{
	int to[2], from[2];

	*peer = (struct bench_peer){0};
	if (pipe(to))
		return;
	if (pipe(from)) {
		close(to[0]);
		close(to[1]);
		return;
	}
	signal(SIGPIPE, SIG_IGN);
	peer->pid = fork();
	if (!peer->pid)
		run_script(to, from, script, argument);
	close(to[0]);
	close(from[1]);
	peer->to = fdopen(to[1], "w");
	peer->from = fdopen(from[0], "r");
}

void bench_peer_stop(struct bench_peer *peer)
{
	if (peer->to)
		fclose(peer->to);
	if (peer->from)
		fclose(peer->from);
	if (peer->pid > 0)
		waitpid(peer->pid, NULL, 0);
	*peer = (struct bench_peer){0};
}

bool bench_peer_ask(struct bench_peer *peer, const char *task, double *out_us, uint64_t *out_sum)
{
	char line[80];

	if (!peer->to || !peer->from || fprintf(peer->to, "%s\n", task) < 0 || fflush(peer->to) ||
	    !fgets(line, sizeof(line), peer->from))
		return false;
	return sscanf(line, "%lf %" SCNu64, out_us, out_sum) == 2;
}
