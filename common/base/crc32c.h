/* CRC-32C (Castagnoli), the checksum that processors have an instruction for. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The checksum of some bytes and then of `size` more; `crc` is that of the first ones (0: there are none). */
uint32_t crc32c(uint32_t crc, const void *data, size_t size);

typedef uint32_t (*crc32c_function)(uint32_t crc, const void *data, size_t size);
#define CRC32C_VERSIONS_MAX 2
/* Those that this processor runs, the fastest first; their number. */
unsigned crc32c_versions(crc32c_function version[CRC32C_VERSIONS_MAX]);
