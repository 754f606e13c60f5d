/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kernel in one source, so that one image holds them all, as PTX too. Each file has a namespace for
 * its helpers; kernels are extern "C". Headers come first, outside: their guards then keep them out of the
 * namespaces. The CPU build compiles the files one by one.
 */
#include "args.h"
#include "mla.h"
#include "rows.h"
#include "tile.h"

namespace mla_dense_file
{
#include "mla_dense.cu"
}
namespace mla_sparse_file
{
#include "mla_sparse.cu"
}
namespace combine_file
{
#include "combine.cu"
}
namespace mla_plan_file
{
#include "mla_plan.cu"
}
namespace gqa_file
{
#include "gqa.cu"
}
namespace mla_write_file
{
#include "mla_write.cu"
}
namespace kv_write_file
{
#include "kv_write.cu"
}
namespace correct_file
{
#include "correct.cu"
}
namespace msa_scores_file
{
#include "msa_scores.cu"
}
namespace msa_select_file
{
#include "msa_select.cu"
}
namespace block_copy_file
{
#include "block_copy.cu"
}
namespace table_gather_file
{
#include "table_gather.cu"
}
namespace stage_file
{
#include "stage.cu"
}
