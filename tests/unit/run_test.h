/* Linked to every unit test. */
#ifndef HVD_TESTS_RUN_TEST_H
#define HVD_TESTS_RUN_TEST_H

#include <check.h>

/* Runs the suite, which is freed with its runner. Returns the exit status for main. */
int run_suite(Suite *suite);

#endif
