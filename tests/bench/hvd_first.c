/* hvd_first - the shortest program of libhvd with a result: hvd_init, an allreduce of 4 bytes,
 * hvd_shutdown. */
#include "tests/bench/bench_call.h"

#include <hvd.h>

int main(void)
{
    int one = 1;

    bench_check(hvd_init(), "hvd_init");
    bench_rank = hvd_rank();
    bench_check(hvd_allreduce("first", &one, &one, 1, HVD_INT32, HVD_SUM, NULL), "hvd_allreduce");
    if (one != hvd_size())
        bench_fail("the sum over %d ranks is %d", hvd_size(), one);
    bench_check(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
