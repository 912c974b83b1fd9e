/* The gradients of ResNet-50, from its layer table (He et al., 2015, with biases only where batch
 * normalization and the last layer have them): 161 tensors, 25,557,032 parameters. The order is that of
 * backward: the last layer's come first. */
#pragma once

#include <stddef.h>

#define RESNET50_TENSORS    161
#define RESNET50_PARAMETERS 25557032

/* A convolution without bias, and the scale and shift of the normalization behind it. */
static inline int resnet50_conv(size_t *count, int n, size_t in, size_t out, size_t kernel)
{
    count[n++] = in * out * kernel * kernel;
    count[n++] = out;
    count[n++] = out;
    return n;
}

/* Elements of each gradient into count[RESNET50_TENSORS]. 0, or -1 when the table does not add up. */
static inline int resnet50(size_t *count)
{
    static const struct {
        int blocks;
        size_t width;
    } stage[] = {{3, 64}, {4, 128}, {6, 256}, {3, 512}};
    size_t in = 64, sum = 0;
    int n = resnet50_conv(count, 0, 3, 64, 7);

    for (size_t s = 0; s < sizeof stage / sizeof *stage; s++)
        for (int b = 0; b < stage[s].blocks; b++) {
            const size_t width = stage[s].width, out = 4 * width;

            if (n + (b == 0 ? 12 : 9) > RESNET50_TENSORS)
                return -1;
            n = resnet50_conv(count, n, in, width, 1);
            n = resnet50_conv(count, n, width, width, 3);
            n = resnet50_conv(count, n, width, out, 1);
            if (b == 0) /* the shortcut changes shape as well */
                n = resnet50_conv(count, n, in, out, 1);
            in = out;
        }
    if (n + 2 != RESNET50_TENSORS)
        return -1;
    count[n++] = in * 1000;
    count[n++] = 1000;
    for (int i = 0; i < n / 2; i++) {
        const size_t front = count[i];

        count[i] = count[n - 1 - i];
        count[n - 1 - i] = front;
    }
    for (int i = 0; i < n; i++)
        sum += count[i];
    return sum == RESNET50_PARAMETERS ? 0 : -1;
}
