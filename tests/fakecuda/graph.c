/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs and their executable copies: a list of operations, queued again at each launch with the parameters
 * that it was captured with.
 */
#include "fake.h"

#include <stdlib.h>

struct exec {
	struct fake_op *head, *tail;
};

/* The empty graph stays, for events that point to it. */
FAKE_ENTRY(cuGraphDestroy, (struct kvw_cuda_graph * handle), (handle))
{
	struct fake_graph *graph = fake_object_get(FAKE_KIND_GRAPH, handle);

	if (!graph)
		return KVW_CUDA_INVALID_VALUE;
	fake_op_free_all(&graph->head);
	fake_object_remove(FAKE_KIND_GRAPH, handle);
	return 0;
}

FAKE_ENTRY(cuGraphInstantiateWithFlags,
	   (struct kvw_cuda_graph_exec * *out, struct kvw_cuda_graph *handle, unsigned long long flags),
	   (out, handle, flags))
{
	struct fake_graph *graph = fake_object_get(FAKE_KIND_GRAPH, handle);
	struct exec *exec;

	if (!graph || flags)
		return KVW_CUDA_INVALID_VALUE;
	exec = calloc(1, sizeof(*exec));
	if (!exec)
		abort();
	for (const struct fake_op *op = graph->head; op; op = op->next)
		fake_op_append(&exec->head, &exec->tail, op);
	*out = fake_object_add(FAKE_KIND_EXEC, exec);
	return 0;
}

FAKE_ENTRY(cuGraphLaunch, (struct kvw_cuda_graph_exec * handle, struct kvw_cuda_stream *stream_handle),
	   (handle, stream_handle))
{
	struct fake_stream *stream = fake_stream_get(stream_handle);
	const struct exec *exec = fake_object_get(FAKE_KIND_EXEC, handle);
	unsigned result = 0;

	if (!exec)
		return KVW_CUDA_INVALID_VALUE;
	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	for (const struct fake_op *op = exec->head; op && !result; op = op->next)
		result = fake_stream_push(stream, op);
	return result;
}

FAKE_ENTRY(cuGraphExecDestroy, (struct kvw_cuda_graph_exec * handle), (handle))
{
	struct exec *exec = fake_object_get(FAKE_KIND_EXEC, handle);

	if (!exec)
		return KVW_CUDA_INVALID_VALUE;
	fake_op_free_all(&exec->head);
	fake_object_remove(FAKE_KIND_EXEC, handle);
	free(exec);
	return 0;
}
