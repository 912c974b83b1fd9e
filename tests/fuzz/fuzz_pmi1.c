/* Lines and records of PMI-1 from any bytes. Parsed fields stay within their line. A record that was read
 * is written again as the same bytes. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmi1/pmi1_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_line(const uint8_t *data, size_t size)
{
    struct pmi1_message m;
    char *line = malloc(size + 1), word[40];
    uint32_t n;
    if (!line)
        return;
    memcpy(line, data, size);
    if (pmi1_parse(line, size, &m, NULL) == 0) {
        if (m.fields == 0 || m.fields > PMI1_FIELDS_MAX || !m.command)
            abort();
        for (size_t i = 0; i < m.fields; i++) {
            const char *value = pmi1_get(&m, m.field[i].name);
            bool text = strcmp(m.field[i].name, "message") == 0; /* of an abort: the rest of the line */
            if (value != m.field[i].value || (!text && strchr(value, ' ')) ||
                value + strlen(value) > line + size)
                abort();
            if (pmi1_get_number(&m, m.field[i].name, 1000, &n) && n > 1000)
                abort();
            if (strpbrk(pmi1_word(value, word, sizeof word), " =\n"))
                abort();
        }
    }
    free(line);
}

static void fuzz_records(const uint8_t *data, size_t size)
{
    struct reader r = reader_of(data, size);
    struct pmi1_record record;
    const uint8_t *before = data;
    while (pmi1_read_record(&r, &record)) {
        uint8_t again[PMI1_RECORD_MAX];
        struct writer w = writer_of(again, sizeof again);
        pmi1_write_record(&w, record.kind, record.key, record.value);
        size_t len = sizeof again - w.left;
        if (w.bad || len != (size_t)(r.at - before) || memcmp(again, before, len) != 0)
            abort();
        before = r.at;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] & 1)
        fuzz_line(data + 1, size - 1);
    else
        fuzz_records(data + 1, size - 1);
    return 0;
}
