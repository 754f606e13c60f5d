/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test's side of the driver double: starting programs under it, and reading its books.
 *
 * A test calls kvt_cuda_start() first in main(): it starts the program anew with the double in the library
 * path where it isn't, and gives this run a machine of its own, which every child inherits.
 */
#ifndef KVPOOL_TESTS_FAKECUDA_CONTROL_H
#define KVPOOL_TESTS_FAKECUDA_CONTROL_H

#include "machine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

void kvt_cuda_start(char **argv);
/* Where false, on a device of tests/gpu, there are no books: what asks for them skips its test. */
bool kvt_cuda_is_double(void);

struct fake_machine *kvt_cuda_machine(void);
/*
 * The newest process of this number under the double; also after its end. Fails the test when there was
 * none.
 */
struct fake_process *kvt_cuda_process(pid_t pid);
/* How often a process has called a function, by name; counts what was refused too. */
uint64_t kvt_cuda_calls(pid_t pid, const char *function);
/* Handles that the process has now, or had at its end: their number, and which, in `text` (nullable). */
int64_t kvt_cuda_live(pid_t pid, char *text, size_t bytes);
/*
 * This process's calls: the `call`-th of `function` from now on (NULL: of all) answers `code`; 0: each. Code
 * 0 ends it.
 */
void kvt_cuda_fail(const char *function, uint64_t call, unsigned code);
/* The same in another process, which must have called the double. */
void kvt_cuda_fail_in(pid_t pid, const char *function, uint64_t call, unsigned code);
/*
 * Calls of `function` in that process don't return until it is called again with NULL; kvt_cuda_hanging() do
 * so now.
 */
void kvt_cuda_hang(pid_t pid, const char *function);
unsigned kvt_cuda_hanging(pid_t pid);

/*
 * Starts this program again as `role`, with a socket as descriptor 3 whose other end is *out_socket, and
 * with more variables ("A=b", NULL at the end; nullable). In the child kvt_cuda_role() is the role; NULL
 * elsewhere.
 */
pid_t kvt_cuda_spawn(const char *role, const char *const *environment, int *out_socket);
#define KVT_CUDA_ROLE_SOCKET 3
const char *kvt_cuda_role(void);
/*
 * Whole packets; with a descriptor where fd >= 0, *out_fd (nullable) is one that came, or -1. A lost peer
 * fails the test.
 */
void kvt_cuda_send(int socket, const void *bytes, size_t length, int fd);
void kvt_cuda_receive(int socket, void *bytes, size_t length, int *out_fd);
/* Its exit status, or 128 + signal. */
int kvt_cuda_reap(pid_t pid);

#endif
