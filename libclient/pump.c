/* SPDX-License-Identifier: Apache-2.0 */
#include "pump.h"

#include "ipc/frame.h"

#include "client.h"
#include "close.h"
#include "complete.h"
#include "post.h"
#include "publish.h"

void kvc_owe(struct kvp_client *client, uint32_t row, uint8_t what)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_row *cold = &engine->rows[row];

	if (!cold->owes) {
		cold->owed_next = -1;
		if (engine->owed_tail < 0)
			engine->owed_head = (int32_t)row;
		else
			engine->rows[engine->owed_tail].owed_next = (int32_t)row;
		engine->owed_tail = (int32_t)row;
	}
	cold->owes |= what;
}

static uint32_t take_owed(struct kvc_engine *engine)
{
	uint32_t row = (uint32_t)engine->owed_head;

	engine->owed_head = engine->rows[row].owed_next;
	if (engine->owed_head < 0)
		engine->owed_tail = -1;
	return row;
}

/* Oldest first, each once: a row that still finds no room comes back to the end and ends the round. */
static void pay_owed(struct kvp_client *client)
{
	struct kvc_engine *engine = client->engine;

	while (engine->owed_head >= 0) {
		uint32_t row = take_owed(engine);
		struct kvc_row *cold = &engine->rows[row];

		cold->owes = 0;
		kvc_publish_post(client, row);
		kvc_close_advance(client, row);
		if (cold->owes)
			return;
	}
}

void kvc_pump(struct kvp_client *client)
{
	struct kvc_engine *engine = client->engine;

	if (engine->pumping || kvc_check_session(client))
		return;
	engine->pumping = true;
	kvc_complete_all(client);
	if (!kvc_is_gone(client))
		pay_owed(client);
	kvc_lease_pump(client);
	engine->pumping = false;
}

void kvc_first_lease(struct kvp_client *client)
{
	pthread_mutex_lock(&client->lock);
	client->engine->lease.pace_since_ns = kvw_now_ns();
	kvc_pump(client);
	kvc_ring_doorbell(client->engine);
	pthread_mutex_unlock(&client->lock);
}
