#include "collectives/algorithms/segments.h"

#define LINE         64u
#define PIECE_SMALL  (16u << 10)
#define PIECES       8 /* a segment is cut into about so many */
#define WINDOW_LEAST 2
#define WINDOW_MOST  8

struct segment segment_of(uint64_t count, size_t element_size, uint32_t hosts, uint32_t index)
{
    uint64_t line = LINE / element_size;
    uint64_t each = count / hosts + (count % hosts != 0);
    each = (each + line - 1) / line * line;
    uint64_t first = each * index < count ? each * index : count;
    uint64_t size = count - first < each ? count - first : each;
    return (struct segment){first * element_size, size * element_size};
}

uint32_t segment_piece(uint64_t segment_size, uint32_t most)
{
    uint64_t piece = (segment_size / PIECES + LINE - 1) / LINE * LINE;
    if (piece < PIECE_SMALL)
        piece = PIECE_SMALL;
    piece = piece < most ? piece : most;
    if (most % SEGMENT_PACKET == 0 && piece > SEGMENT_PACKET)
        piece -= piece % SEGMENT_PACKET;
    return (uint32_t)piece;
}

uint32_t segment_piece_at(uint64_t segment_size, uint32_t piece, uint64_t offset)
{
    uint64_t left = segment_size - offset;
    return left < piece ? (uint32_t)left : piece;
}

uint32_t segment_window(uint64_t segment_size, uint32_t piece, uint32_t peers, uint64_t budget)
{
    uint64_t pieces = (segment_size + piece - 1) / piece;
    uint64_t window = budget / ((uint64_t)piece * (peers ? peers : 1));
    window = window < WINDOW_LEAST ? WINDOW_LEAST : window > WINDOW_MOST ? WINDOW_MOST : window;
    return (uint32_t)(window < pieces ? window : pieces);
}
