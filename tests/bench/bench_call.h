/* All benches treat a call alike: end on its error, check it, time it. */
#pragma once

extern int bench_rank;

/* Both end the program when they fail: rank, what and why are said. */
_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_check(int status, const char *what);
double bench_now_us(void);
