/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile by processes: children that keep what they inherited, clients that die as soon as they are there,
 * clients that stand still.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "foe.h"

#define STRETCH_MS 200u
#define CHILDREN 6u
#define MOST_DEATHS 16u

/* In the child: lives until its parent dies or kills it. */
static _Noreturn void stay(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

static void end_child(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/*
 * The parent's copies are gone, the children's not: no end of file comes, and the session goes on until they
 * die.
 */
void kvt_mode_fork_bomb_lite(struct kvt_foe *foe)
{
	pid_t children[CHILDREN];
	uint32_t i;

	kvt_foe_begin(foe, STRETCH_MS);
	for (i = 0; i < CHILDREN; i++) {
		children[i] = fork();
		if (!children[i])
			stay();
	}
	kvt_foe_drop(foe);
	for (i = 0; i < CHILDREN && kvt_foe_goes_on(foe); i++) {
		if (!kvt_foe_open(foe, NULL))
			continue;
		end_child(children[i]);
		children[i] = fork();
		if (!children[i])
			stay();
		kvt_foe_drop(foe);
	}
	for (i = 0; i < CHILDREN; i++)
		end_child(children[i]);
}

/* One that dies with blocks leased, at any point of its way. */
static _Noreturn void live_briefly(struct kvt_foe *foe)
{
	const struct kvw_request lease = {.type = KVW_REQUEST_LEASE, .count = 16};
	const struct kvw_msg_ATTACH attach = kvt_foe_attach_message();
	struct kvw_completion done;
	uint32_t steps = kvt_foe_pick(foe, 6);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (steps > 0 && !kvt_foe_connect(foe) && steps > 1 && !kvt_foe_hello(foe) && steps > 2 &&
	    !kvt_foe_attach(foe, &attach) && steps > 3 && !kvt_foe_map(foe) && steps > 4)
		kvt_foe_do(foe, &lease, &done);
	raise(SIGKILL);
	_exit(1);
}

void kvt_mode_reattach_loop(struct kvt_foe *foe)
{
	uint32_t i;

	kvt_foe_begin(foe, STRETCH_MS);
	for (i = 0; i < MOST_DEATHS && kvt_foe_goes_on(foe); i++) {
		pid_t pid = fork();

		foe->rng.state += i;
		if (!pid)
			live_briefly(foe);
		if (pid < 0)
			break;
		waitpid(pid, NULL, 0);
		foe->row->endings[KVT_ENDING_DIED]++;
	}
}

/* Holds blocks and a full ring, and stands still; then it is killed. */
static _Noreturn void stand_still(struct kvt_foe *foe)
{
	const struct kvw_request lease = {.type = KVW_REQUEST_LEASE, .count = 64};
	struct kvw_request request;
	struct kvw_completion done;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (kvt_foe_open(foe, NULL)) {
		kvt_foe_do(foe, &lease, &done);
		do
			request = kvt_foe_plausible(foe);
		while (!kvt_foe_post(foe, &request));
	}
	raise(SIGSTOP);
	_exit(1);
}

void kvt_mode_stopped_client(struct kvt_foe *foe)
{
	const struct kvw_msg_POOL request = {.name = kvw_text_of(KVT_FOE_POOL)};
	pid_t pid = fork();

	kvt_foe_begin(foe, STRETCH_MS);
	if (!pid)
		stand_still(foe);
	waitpid(pid, NULL, WUNTRACED);
	while (kvt_foe_goes_on(foe))
		kvt_foe_ask(foe, KVW_MSG_POOL, &request);
	end_child(pid);
	foe->row->endings[KVT_ENDING_DIED]++;
}
