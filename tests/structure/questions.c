/* Sentences of comments that begin with a question word: "Who only takes needs no place." makes its reader
 * look for the noun. Counted are the first word of every comment, also in small letters, and every word
 * with a capital letter behind the end of a sentence. A name in back quotes, or with an underscore or a
 * bracket after it, is no word. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "tests/structure/comments.h"
#include "tests/structure/measures.h"

#define SHOWN 70 /* characters of a sentence */

static const char *const question[] = {"who",      "whom",  "whose",     "whoever", "what",
                                       "whatever", "which", "whichever", "where",   "wherever"};

static size_t word_length(const char *p, const char *end)
{
    size_t len = 0;
    while (p + len < end && (isalnum((unsigned char)p[len]) || p[len] == '_'))
        len++;
    return len;
}

static bool is_question(const char *word, size_t len, const char *end)
{
    if (word[-1] == '`' || (word + len < end && word[len] == '('))
        return false;
    for (size_t i = 0; i < sizeof question / sizeof *question; i++)
        if (strlen(question[i]) == len && strncasecmp(question[i], word, len) == 0)
            return true;
    return false;
}

/* Whether blanks, a line's end and the sign at the next line's beginning are all that stands between
 * `end`, the sign that ends a sentence, and `word`; a closing bracket or quote may follow the sign. */
static bool ends_sentence(const char *from, const char *word)
{
    const char *p = word;
    bool blank = false;
    while (p > from && (isspace((unsigned char)p[-1]) || p[-1] == '*' || p[-1] == '(')) {
        blank = blank || isspace((unsigned char)p[-1]);
        p--;
    }
    while (blank && p > from && strchr(")\"'`", p[-1]))
        p--;
    return blank && p > from && strchr(".!?", p[-1]);
}

static void add_question(struct offenders *o, const struct source *s, int line, const char *word,
                         const char *end)
{
    char text[SHOWN + 1];
    size_t used = 0;
    for (const char *p = word; p < end && used < SHOWN && *p != '\n'; p++)
        text[used++] = *p;
    offender_add(o, s->path, line, 1, "%.*s", (int)used, text);
}

static int count_comment(const struct source *s, const struct comment *c, struct offenders *o)
{
    const char *end = c->text + c->len;
    int line = c->line, found = 0;
    bool first = true;
    for (const char *p = c->text + 2; p < end;) {
        size_t len = word_length(p, end);
        bool begins = first || (isupper((unsigned char)*p) && ends_sentence(c->text + 2, p));
        if (len > 0 && begins && is_question(p, len, end)) {
            found++;
            add_question(o, s, line, p, end);
        }
        first = first && !isalpha((unsigned char)*p);
        line += *p == '\n';
        p += len ? len : 1;
    }
    return found;
}

static int count_tree(const struct house *h, struct offenders *o, bool product)
{
    int found = 0;
    for (int i = 0; i < h->tree->sources; i++) {
        const struct source *s = &h->tree->source[i];
        const char *p = s->raw;
        struct comment c;
        int line = 1;
        while (is_product(s->path) == product && comment_next(&p, &line, &c))
            found += count_comment(s, &c, o);
    }
    return found;
}

int count_questions(const struct house *h, struct offenders *o)
{
    return count_tree(h, o, true);
}

int count_test_questions(const struct house *h, struct offenders *o)
{
    return count_tree(h, o, false);
}
