/* How a tensor is cut among hosts, and a segment into pieces for the wire (pure).
 *
 * Depends only on the tensor and on the number of hosts, so every host cuts alike; an element's host is a
 * matter of its index alone. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bytes. */
struct segment {
    uint64_t offset, size;
};

/* The part of `count` elements that host `index` of `hosts` owns. Cuts lie on cache lines; the last hosts of
 * a small tensor own nothing. */
struct segment segment_of(uint64_t count, size_t element_size, uint32_t hosts, uint32_t index);
#define SEGMENT_PIECE_DEFAULT (256u << 10)
/* The kernel hands at most 64 KiB with all headers to a network device at once. A piece of 64 KiB would cost
 * a second, small packet, and an acknowledgement more. */
#define SEGMENT_PACKET_MAX (64u << 10)
#define SEGMENT_PACKET     (60u << 10)

/* The piece size for a segment: small enough that sending, summing and sending on overlap, large enough that
 * frames cost little. `most`: a multiple of 64. If `most` is a multiple of SEGMENT_PACKET, a piece above
 * SEGMENT_PACKET is a multiple, too. */
uint32_t segment_piece(uint64_t segment_size, uint32_t most);
/* Bytes of the piece that begins at `offset`. */
uint32_t segment_piece_at(uint64_t segment_size, uint32_t piece, uint64_t offset);
/* How many pieces of each of `peers` hosts fit into `budget` bytes of staging, within sane bounds. */
uint32_t segment_window(uint64_t segment_size, uint32_t piece, uint32_t peers, uint64_t budget);
