/* A guess at the word that a user meant: the flag or key with the fewest slips between it and an unknown
 * word. */
#include <string.h>

#include "common/options/options_table.h"

#define NEAR_WORD   64 /* longer words are not compared */
#define NEAR_PREFIX 3  /* letters that suggest the flag which begins with them */

/* Edits (insert, delete, replace, swap of neighbours) from a to b, which are shorter than NEAR_WORD. */
static size_t count_edits(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][NEAR_WORD + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_len; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[b_len];
}

/* The best so far, with its number of slips. */
struct near {
    struct option_name word; /* as typed */
    struct option_name best;
    size_t edits;
};

static struct option_name without_dashes(const char *text, size_t len)
{
    while (len && *text == '-')
        text++, len--;
    return (struct option_name){.text = text, .len = len};
}

static struct near begin_search(const char *word, size_t len)
{
    struct option_name w = without_dashes(word, len);
    return (struct near){.word = w, .edits = w.len / 3 < 2 ? w.len / 3 + 1 : 3};
}

static void compare_name(struct near *near, struct option_name name)
{
    struct option_name w = near->word, n = without_dashes(name.text, name.len);
    if (n.len < 2 || n.len >= NEAR_WORD || w.len >= NEAR_WORD)
        return;
    size_t slips = count_edits(w.text, w.len, n.text, n.len);
    if (w.len >= NEAR_PREFIX && w.len < n.len && memcmp(w.text, n.text, w.len) == 0)
        slips = 1;
    if (slips < near->edits) {
        near->edits = slips;
        near->best = name;
    }
}

struct option_name option_near_flag(const struct options_program *program, const char *word, size_t len)
{
    struct near near = begin_search(word, len);
    for (size_t i = 0; i < program->count; i++) {
        struct option_name flag = {0};
        while (option_next_name(program->spec[i].flags, &flag))
            compare_name(&near, flag);
    }
    return near.best;
}

struct option_name option_near_key(const struct options_program *program, const char *word, size_t len)
{
    struct near near = begin_search(word, len);
    for (size_t i = 0; i < program->count; i++) {
        struct option_name key = {0};
        while (option_next_name(program->spec[i].yaml, &key))
            compare_name(&near, key);
    }
    return near.best;
}
