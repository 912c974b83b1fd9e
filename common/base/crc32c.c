/* Two versions with one result: tables for any processor, and SSE 4.2's instruction on three lanes at once,
 * since each takes three cycles; their remainders are joined by a carry-less multiplication (Gopal et al.,
 * "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction"). */
#include "common/base/crc32c.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define POLYNOMIAL 0x82f63b78u /* its bits reversed, as everything here */

/* ---- tables -------------------------------------------------------------------------------------------- */

static uint32_t table[8][256]; /* [k]: of a byte with k bytes of 0 behind it */

static void fill_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
}

static uint32_t crc_by_tables(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *p = data;
    crc = ~crc;
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t low =
            crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
              table[4][low >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    for (; size > 0; size--, p++)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}

#ifdef __x86_64__

/* ---- the instruction ----------------------------------------------------------------------------------- */

#define LANE 1344 /* bytes */
/* The factor that moves a lane's crc over that many bytes: x to the power of their bits - 33. */
#define OVER_LANE  0xc9c8b782
#define OVER_LANES 0x889774e1 /* and over twice as many */

__attribute__((target("sse4.2"))) static uint32_t crc_in_order(uint32_t crc, const uint8_t *p, size_t size)
{
    uint64_t wide = crc, bytes;
    for (; size >= 8; size -= 8, p += 8) {
        memcpy(&bytes, p, 8);
        wide = _mm_crc32_u64(wide, bytes);
    }
    crc = (uint32_t)wide;
    for (; size > 0; size--, p++)
        crc = _mm_crc32_u8(crc, *p);
    return crc;
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc_by_lanes(uint32_t crc, const void *data,
                                                                      size_t size)
{
    const uint8_t *p = data;
    uint64_t a = (uint32_t)~crc;
    for (; size >= 3 * LANE; size -= 3 * LANE, p += 3 * LANE) {
        uint64_t b = 0, c = 0, word[3];
        for (size_t i = 0; i < LANE; i += 8) {
            memcpy(&word[0], p + i, 8);
            memcpy(&word[1], p + LANE + i, 8);
            memcpy(&word[2], p + 2 * LANE + i, 8);
            a = _mm_crc32_u64(a, word[0]);
            b = _mm_crc32_u64(b, word[1]);
            c = _mm_crc32_u64(c, word[2]);
        }
        __m128i first =
            _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)a), _mm_cvtsi32_si128((int)OVER_LANES), 0);
        __m128i second =
            _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)b), _mm_cvtsi32_si128((int)OVER_LANE), 0);
        a = c ^ _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(first, second)));
    }
    return ~crc_in_order((uint32_t)a, p, size);
}

#endif

/* ---- the choice ---------------------------------------------------------------------------------------- */

unsigned crc32c_versions(crc32c_function version[CRC32C_VERSIONS_MAX])
{
    static pthread_once_t filled = PTHREAD_ONCE_INIT;
    unsigned n = 0;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
        version[n++] = crc_by_lanes;
#endif
    pthread_once(&filled, fill_tables);
    version[n++] = crc_by_tables;
    return n;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t size)
{
    static _Atomic(crc32c_function) chosen;
    crc32c_function f = atomic_load_explicit(&chosen, memory_order_acquire);
    if (!f) {
        crc32c_function version[CRC32C_VERSIONS_MAX];
        crc32c_versions(version);
        f = version[0];
        atomic_store_explicit(&chosen, f, memory_order_release);
    }
    return f(crc, data, size);
}
