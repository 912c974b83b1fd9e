/* Stands in for the driver's libnvidia-ml.so.1 where there is no GPU: it counts HVD_TEST_GPUS of them. What
 * it answers, and that it must be initialised first, is what NVML documents. */
#include <stdlib.h>

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);

static int initialised;

int nvmlInit_v2(void)
{
    const char *gpus = getenv("HVD_TEST_GPUS");
    if (!gpus)
        return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
    initialised++;
    return 0;
}

int nvmlShutdown(void)
{
    return initialised-- > 0 ? 0 : 1;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    const char *gpus = getenv("HVD_TEST_GPUS");
    if (initialised <= 0 || !gpus)
        return 1; /* NVML_ERROR_UNINITIALIZED */
    *count = (unsigned)strtoul(gpus, NULL, 10);
    return 0;
}
