#include "agent/rendezvous/pmi1/pmi1_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/protocol/host_ranks.h"

static bool is_printable(char c)
{
    return c > ' ' && c < 127;
}

static int check_bytes(const char *line, size_t len, struct err *e)
{
    for (size_t i = 0; i < len; i++)
        if (!is_printable(line[i]) && line[i] != ' ')
            return err_set(e, ERR_PROTOCOL, "a line has the byte %u, which is not printable",
                           (unsigned)(unsigned char)line[i]);
    return 0;
}

/* NAME=VALUE, which ends where a 0 was put. */
static int parse_field(struct pmi1_message *m, char *word, struct err *e)
{
    char *equal = strchr(word, '=');
    if (!equal || equal == word)
        return err_set(e, ERR_PROTOCOL, "'%.40s' is not NAME=VALUE", word);
    if (m->fields == PMI1_FIELDS_MAX)
        return err_set(e, ERR_PROTOCOL, "more than %d values in a line", PMI1_FIELDS_MAX);
    *equal = '\0';
    if (pmi1_get(m, word))
        return err_set(e, ERR_PROTOCOL, "'%.40s' stands twice in a line", word);
    m->field[m->fields++] = (struct pmi1_field){word, equal + 1};
    return 0;
}

/* The sentence of cmd=abort as a last field, cut off the line; bytes that are not printable become '?'.
 * Returns the line's new length. */
static size_t cut_message(char *line, size_t len, struct pmi1_field *message)
{
    static const char begin[] = "cmd=abort ", name[] = " message=";
    if (len < sizeof begin - 1 || memcmp(line, begin, sizeof begin - 1) != 0)
        return len;
    char *at = memmem(line, len, name, sizeof name - 1);
    if (!at)
        return len;
    char *text = at + sizeof name - 1;
    for (char *c = text; c < line + len; c++)
        if (!is_printable(*c) && *c != ' ')
            *c = '?';
    line[len] = '\0';
    *message = (struct pmi1_field){"message", text};
    return (size_t)(at - line);
}

int pmi1_parse(char *line, size_t len, struct pmi1_message *m, struct err *e)
{
    *m = (struct pmi1_message){0};
    struct pmi1_field message = {0};
    len = cut_message(line, len, &message);
    if (check_bytes(line, len, e) < 0)
        return -1;
    line[len] = '\0';
    for (char *word = line; *word;) {
        size_t n = strcspn(word, " ");
        char *next = word[n] ? word + n + 1 : word + n;
        word[n] = '\0';
        if (n > 0 && parse_field(m, word, e) < 0)
            return -1;
        word = next;
    }
    m->multi = m->fields > 0 && strcmp(m->field[0].name, "mcmd") == 0;
    if (m->fields == 0 || (!m->multi && strcmp(m->field[0].name, "cmd") != 0))
        return err_set(e, ERR_PROTOCOL, "a line does not begin with cmd=");
    m->command = m->field[0].value;
    if (message.name && m->fields < PMI1_FIELDS_MAX)
        m->field[m->fields++] = message;
    return 0;
}

const char *pmi1_get(const struct pmi1_message *m, const char *name)
{
    for (size_t i = 0; i < m->fields; i++)
        if (strcmp(m->field[i].name, name) == 0)
            return m->field[i].value;
    return NULL;
}

bool pmi1_get_number(const struct pmi1_message *m, const char *name, uint32_t max, uint32_t *number)
{
    const char *text = pmi1_get(m, name);
    uint64_t value = 0;
    if (!text || !*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > max)
            return false;
    }
    *number = (uint32_t)value;
    return true;
}

char *pmi1_word(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; text[n] && n + 1 < size; n++)
        out[n] = is_printable(text[n]) && text[n] != '=' ? text[n] : '_';
    out[n] = '\0';
    return out;
}

/* Nodes first, first + 1, ..., each with the next `ranks` ranks. */
struct pmi1_block {
    uint32_t first, nodes, ranks;
};

/* Of the ranks from *rank on, which moves behind it. */
static struct pmi1_block next_block(const uint32_t *host_of, uint32_t size, uint32_t *rank)
{
    struct pmi1_block b = {.first = host_of[*rank]};
    for (;;) {
        uint32_t next = *rank;
        while (next < size && host_of[next] == b.first + b.nodes)
            next++;
        if (next == *rank || (b.nodes > 0 && next - *rank != b.ranks))
            return b;
        b.ranks = next - *rank;
        b.nodes++;
        *rank = next;
    }
}

static int write_blocks(const uint32_t *host_of, uint32_t size, char *out, size_t out_size)
{
    uint32_t rank = 0;
    struct pmi1_block first = next_block(host_of, size, &rank), b = first;
    size_t n = (size_t)snprintf(out, out_size, "(vector");
    bool alike = true; /* readers begin again at the end */
    for (uint32_t next = rank; alike && next < size;) {
        b = next_block(host_of, size, &next);
        alike = memcmp(&b, &first, sizeof b) == 0;
    }
    rank = 0;
    do {
        b = next_block(host_of, size, &rank);
        n += (size_t)snprintf(out + n, out_size - n, ",(%u,%u,%u)", b.first, b.nodes, b.ranks);
    } while (!alike && rank < size && n < out_size);
    if (n < out_size)
        n += (size_t)snprintf(out + n, out_size - n, ")");
    return n < out_size ? 0 : -1;
}

int pmi1_mapping(Hvd__HostRanks *const *host, size_t hosts, char *out, size_t size)
{
    uint32_t ranks = 0;
    for (size_t i = 0; i < hosts; i++)
        ranks += host[i]->ranks;
    uint32_t *host_of = calloc(ranks ? ranks : 1, sizeof *host_of);
    for (size_t i = 0; host_of && i < hosts; i++)
        for (uint32_t k = 0; k < host[i]->ranks; k++)
            host_of[host_rank(host[i], k)] = (uint32_t)i;
    int rc = host_of && ranks > 0 ? write_blocks(host_of, ranks, out, size) : -1;
    free(host_of);
    return rc;
}

/* ---- records ------------------------------------------------------------------------------------------- */

static void read_text(struct reader *r, char *out, size_t size)
{
    size_t len = read_u16(r);
    const uint8_t *bytes = len < size ? read_bytes(r, len) : NULL;
    if (!bytes || memchr(bytes, '\0', len)) {
        r->bad = true;
        return;
    }
    memcpy(out, bytes, len);
    out[len] = '\0';
}

static void write_text(struct writer *w, const char *text)
{
    size_t len = strlen(text);
    write_u16(w, (uint16_t)len);
    write_bytes(w, text, len);
}

bool pmi1_read_record(struct reader *r, struct pmi1_record *record)
{
    if (r->bad || r->left == 0)
        return false;
    record->kind = read_u8(r);
    record->key[0] = '\0';
    if (record->kind == PMI1_PUT)
        read_text(r, record->key, sizeof record->key);
    else if (record->kind != PMI1_FAILED)
        r->bad = true;
    if (!r->bad)
        read_text(r, record->value, sizeof record->value);
    return !r->bad;
}

void pmi1_write_record(struct writer *w, enum pmi1_record_kind kind, const char *key, const char *value)
{
    write_u8(w, (uint8_t)kind);
    if (kind == PMI1_PUT)
        write_text(w, key);
    write_text(w, value);
}
