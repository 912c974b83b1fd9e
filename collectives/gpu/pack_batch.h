/* The parameters of one launch of a kernel of pack.cu: as many pieces as fit, so that nothing need be copied
 * to the GPU first. Read by C, by CUDA and by the test double. */
#pragma once

#define PACK_BATCH   128
#define PACK_THREADS 256

/* Each piece has blocks of its own, as many as its share of the bytes: from its first one to the next
 * piece's, or to the end of the grid. */
struct pack_batch {
    unsigned n;
    unsigned first[PACK_BATCH];
    struct {
        unsigned long long to;
        unsigned long long from;
        unsigned long long count; /* bytes to copy; elements to scale */
    } piece[PACK_BATCH];
};

#define PACK_COPY  "hvd_pack_copy"  /* (struct pack_batch) */
#define PACK_SCALE "hvd_pack_scale" /* (struct pack_batch, int dtype, double factor) */
