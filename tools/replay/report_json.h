/* SPDX-License-Identifier: Apache-2.0 */
/* A replay's result as JSON. */
#ifndef KVPOOL_TOOLS_REPLAY_REPORT_JSON_H
#define KVPOOL_TOOLS_REPLAY_REPORT_JSON_H

#include "report.h"

/* Prints it; the exit code of printing. What was not measured is null. */
int rep_report_json(const struct rep_report *report);

#endif
