/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile --foe SOCKET MODE SEED MILLISECONDS THOROUGH: one mode's share of a run, in a process of its own.
 */
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "facts.h"
#include "foe.h"
#include "program.h"

const struct kvt_mode kvt_modes[] = {
#define X(name) {#name, kvt_mode_##name},
	KVT_MODE_MAP(X)
#undef X
};
const uint32_t kvt_mode_count = sizeof(kvt_modes) / sizeof(kvt_modes[0]);

/* Tables of another size are asked for by name: the map above stays a list of names. */
static void (*shape_of(const char *name))(struct kvw_msg_ATTACH *attach)
{
	static const struct {
		const char *name;
		void (*shape)(struct kvw_msg_ATTACH *attach);
	} shapes[] = {{"hash_bombs", kvt_shape_hash_bombs},
		      {"colliding_keys", kvt_shape_colliding_keys},
		      {"held_inode", kvt_shape_held_inode}};
	uint32_t i;

	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		if (!strcmp(shapes[i].name, name))
			return shapes[i].shape;
	return NULL;
}

static bool become_stranger(void)
{
	if (geteuid() != 0)
		return false;
	if (setgroups(0, NULL) || setgid(KVT_FOE_ID) || setuid(KVT_FOE_ID))
		exit(1);
	/* Cleared by the change. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return true;
}

struct share {
	struct kvt_foe foe;
	const struct kvt_mode *mode;
};

static void use_share(void *arg)
{
	struct share *share = arg;
	struct kvt_foe *foe = &share->foe;
	void (*shape)(struct kvw_msg_ATTACH * attach) = shape_of(share->mode->name);
	struct kvw_msg_ATTACH attach = kvt_foe_attach_message();

	if (shape)
		shape(&attach);
	/* On a crowded machine its share may be over before the first session stands. */
	while (kvt_now_ns() < foe->until_ns || !foe->row->sessions) {
		if (!kvt_foe_open(foe, &attach)) {
			/* Turned away: perhaps its own sessions are being ended. */
			sched_yield();
			continue;
		}
		share->mode->run(foe);
		if (foe->raw.fd >= 0)
			kvt_foe_close(foe);
		else
			foe->row->endings[KVT_ENDING_OWN]++;
	}
	assert_true(foe->row->sessions > 0);
}

static const struct kvt_mode *find_mode(const char *name, uint32_t *out_index)
{
	uint32_t i;

	for (i = 0; i < kvt_mode_count; i++)
		if (!strcmp(kvt_modes[i].name, name)) {
			*out_index = i;
			return &kvt_modes[i];
		}
	return NULL;
}

void kvt_foe_main(int argc, char **argv)
{
	static struct share share;
	struct kvt_board *board;
	uint32_t index = 0;

	if (argc != 7 || strcmp(argv[1], "--foe") != 0)
		return;
	kvt_watchdog(600);
	signal(SIGPIPE, SIG_IGN);
	board = kvt_board_open();
	share.mode = find_mode(argv[3], &index);
	if (!board || !share.mode)
		exit(1);
	snprintf(share.foe.daemon.socket, sizeof(share.foe.daemon.socket), "%s", argv[2]);
	share.foe.rng.state = strtoull(argv[4], NULL, 0);
	share.foe.row = &board->modes[index];
	share.foe.until_ns = kvt_now_ns() + strtoull(argv[5], NULL, 0) * 1000000u;
	share.foe.answer_ms = KVT_FOE_ANSWER_MS;
	share.foe.thorough = argv[6][0] == '1';
	share.foe.stranger = become_stranger();
	exit(kvt_run_body(use_share, &share));
}
