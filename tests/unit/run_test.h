/* Linked to every unit test. */
#pragma once

#include <check.h>
#include <stdbool.h>

/* Runs the suite, which is freed with its runner. Returns the exit status for main. */
int run_suite(Suite *suite);

/* The program runs under an emulator (tests/cross.sh): the kernel's numbers and limits are not its own. */
bool is_emulated(void);
