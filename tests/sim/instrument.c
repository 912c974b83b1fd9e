/* The compiler calls these before every access to memory of the sources that are built for the simulation
 * (-fsanitize=thread, without its library). One to shared memory is a place where a fiber may be set back or
 * die. A weak compare and swap fails now and then for no reason, as on other processors. */
#include <string.h>

#include "tests/sim/sim.h"

static inline void touch(const volatile void *at)
{
    if (sim_is_shared(at))
        sim_point();
}

#define ACCESS(name)                                                                                         \
    void name(void *at);                                                                                     \
    void name(void *at)                                                                                      \
    {                                                                                                        \
        touch(at);                                                                                           \
    }
#define SIZES(name) ACCESS(name##1) ACCESS(name##2) ACCESS(name##4) ACCESS(name##8) ACCESS(name##16)

SIZES(__tsan_read)
SIZES(__tsan_write)
SIZES(__tsan_unaligned_read)
SIZES(__tsan_unaligned_write)
SIZES(__tsan_volatile_read)
SIZES(__tsan_volatile_write)
SIZES(__tsan_unaligned_volatile_read)
SIZES(__tsan_unaligned_volatile_write)

#define ORDERED(name)                                                                                        \
    void name(void *at);                                                                                     \
    void name(void *at)                                                                                      \
    {                                                                                                        \
        (void)at;                                                                                            \
    }
ORDERED(__tsan_acquire)
ORDERED(__tsan_release)
ORDERED(__tsan_func_entry)

void __tsan_read_range(void *at, size_t bytes);
void __tsan_read_range(void *at, size_t bytes)
{
    (void)bytes;
    touch(at);
}

void __tsan_write_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes)
{
    (void)bytes;
    touch(at);
}

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define ATOMIC(bits, type)                                                                                   \
    type __tsan_atomic##bits##_load(const volatile type *at, int order);                                     \
    type __tsan_atomic##bits##_load(const volatile type *at, int order)                                      \
    {                                                                                                        \
        (void)order;                                                                                         \
        touch(at);                                                                                           \
        return *at;                                                                                          \
    }                                                                                                        \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order);                              \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order)                               \
    {                                                                                                        \
        (void)order;                                                                                         \
        touch(at);                                                                                           \
        *at = value;                                                                                         \
        touch(at);                                                                                           \
    }                                                                                                        \
    CHANGE(bits, type, exchange, value)                                                                      \
    CHANGE(bits, type, fetch_add, old + value)                                                               \
    CHANGE(bits, type, fetch_sub, old - value)                                                               \
    CHANGE(bits, type, fetch_and, old &value)                                                                \
    CHANGE(bits, type, fetch_or, old | value)                                                                \
    CHANGE(bits, type, fetch_xor, old ^ value)                                                               \
    SWAP_VALUE(bits, type)                                                                                   \
    SWAP(bits, type, strong, false)                                                                          \
    SWAP(bits, type, weak, chance_one_in(&sim_timing, 16))

#define CHANGE(bits, type, name, result)                                                                     \
    type __tsan_atomic##bits##_##name(volatile type *at, type value, int order);                             \
    type __tsan_atomic##bits##_##name(volatile type *at, type value, int order)                              \
    {                                                                                                        \
        (void)order;                                                                                         \
        touch(at);                                                                                           \
        type old = *at;                                                                                      \
        *at = (type)(result);                                                                                \
        touch(at);                                                                                           \
        return old;                                                                                          \
    }

/* The form of clang: returns what was there. */
#define SWAP_VALUE(bits, type)                                                                               \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected, type value, int order, \
                                                    int order_failed);                                       \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected, type value, int order, \
                                                    int order_failed)                                        \
    {                                                                                                        \
        (void)order, (void)order_failed;                                                                     \
        touch(at);                                                                                           \
        type old = *at;                                                                                      \
        if (old == expected) {                                                                               \
            *at = value;                                                                                     \
            touch(at);                                                                                       \
        }                                                                                                    \
        return old;                                                                                          \
    }

#define SWAP(bits, type, name, fails)                                                                        \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile type *at, type *expected, type value,         \
                                                      int order, int order_failed);                          \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile type *at, type *expected, type value,         \
                                                      int order, int order_failed)                           \
    {                                                                                                        \
        (void)order, (void)order_failed;                                                                     \
        touch(at);                                                                                           \
        type old = *at;                                                                                      \
        if (old != *expected || (fails)) {                                                                   \
            *expected = old;                                                                                 \
            return 0;                                                                                        \
        }                                                                                                    \
        *at = value;                                                                                         \
        touch(at);                                                                                           \
        return 1;                                                                                            \
    }

ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

/* memcpy of those sources: in pieces, between which others may run. */
void *sim_memcpy(void *to, const void *from, size_t bytes);
void *sim_memcpy(void *to, const void *from, size_t bytes)
{
    bool shared = sim_is_shared(to) || sim_is_shared(from);
    size_t piece = bytes < 256 ? 16 : bytes / 8;

    for (size_t at = 0; shared && at + piece < bytes; at += piece) {
        sim_point();
        memcpy((char *)to + at, (const char *)from + at, piece);
    }
    size_t rest = !shared ? 0 : bytes == 0 ? 0 : (bytes - 1) / piece * piece;
    if (shared)
        sim_point();
    memcpy((char *)to + rest, (const char *)from + rest, bytes - rest);
    if (shared)
        sim_point();
    return to;
}
