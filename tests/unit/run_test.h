/* Linked to every unit test. */
#pragma once

#include <check.h>

/* Runs the suite, which is freed with its runner. Returns the exit status for main. */
int run_suite(Suite *suite);
