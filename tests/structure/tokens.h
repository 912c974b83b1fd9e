/* The words and signs of a source, without its comments, the contents of its strings and its preprocessor
 * lines: a macro's body is not code before it is used. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A name, a number, or one character. */
struct token {
    const char *at; /* in the source's text */
    int len;
    int line;
};

/* The end has a token of length 0, which `count` leaves out: the token after any other may be looked at. */
struct tokens {
    struct token *item;
    size_t count;
};

void tokens_read(struct tokens *t, const char *text);
void tokens_free(struct tokens *t);
bool token_is(const struct token *t, const char *word);
bool token_is_name(const struct token *t);
/* Whether it is the first character of its line. */
bool token_begins_line(const struct token *t, const char *text);
/* The index of the bracket that closes the one at `open`, or the index of the end. */
size_t tokens_close(const struct tokens *t, size_t open);
