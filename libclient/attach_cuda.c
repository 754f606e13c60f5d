/* SPDX-License-Identifier: Apache-2.0 */
#include "attach_cuda.h"

#include "client.h"
#include "cuda.h"
#include "error.h"
#include "plan.h"

int kvc_device_open(struct kvp_client *client, const struct kvc_plan *plan)
{
	const struct kvc_cuda_choice choice = {
		.given = plan->params.cuda_context,
		.pool = client->pool->name,
	};

	return choice.given ? kvc_cuda_open(&choice, &client->cuda) : 0;
}

int kvc_device_bind(struct kvp_client *client)
{
	struct kvc_cuda *cuda = client->cuda;
	bool pushed;
	int ret;

	if (!cuda)
		return 0;
	ret = kvc_cuda_enter(cuda, &pushed);
	if (ret)
		return ret;
	ret = kvc_pin(cuda, client->maps[KVC_MAP_TIMELINES].memory, sizeof(struct kvw_timelines), "timelines",
		      &cuda->timelines);
	kvc_cuda_leave(cuda, pushed);
	return ret;
}
