/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that is no test suite but uses the tests' helpers: their assertions say what failed only inside
 * a CMocka test.
 */
#ifndef KVPOOL_TEST_PROGRAM_H
#define KVPOOL_TEST_PROGRAM_H

/*
 * Runs body(arg) as a test whose failures go to standard error and whose chatter goes nowhere; standard
 * output is as before afterwards. 0, or 1 when an assertion failed. The body must not fork processes that
 * return from it.
 */
int kvt_run_body(void (*body)(void *arg), void *arg);

#endif
