#include <stdint.h>

struct narrow {
    int one, two, three;
};

/* 31 fields: the members of a union without a name count, those of a struct with a name do not. */
struct wide {
    int a1, a2, a3, a4, a5, a6, a7, a8, a9, a10;
    struct narrow n[2], *next;
    void (*done)(int status, const char *text);
    union {
        int b1;
        long b2;
    };
    struct {
        int c1, c2, c3;
    } counts;
    enum { IDLE, BUSY } state;
    unsigned flag : 1, other : 2;
    uint8_t address[sizeof(struct narrow[2])];
    int d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11;
};
