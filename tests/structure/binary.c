/* The rules about what was built, read from the ELF files themselves. Bad files are reported, offsets are
 * checked. */
#include "tests/structure/structure.h"

#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct image {
    const char *name;
    const char *bytes;
    size_t size;
};

/* `size` bytes at `offset`, or NULL when the file is shorter. */
static const void *at(const struct image *m, size_t offset, size_t size)
{
    return offset <= m->size && size <= m->size - offset ? m->bytes + offset : NULL;
}

/* The section header number `index`, copied because members of an archive are aligned to 2 only. */
static bool section(const struct image *m, size_t index, Elf64_Shdr *out)
{
    const void *bytes = at(m, 0, sizeof(Elf64_Ehdr));
    Elf64_Ehdr header;
    if (!bytes || memcmp(bytes, ELFMAG, SELFMAG) != 0)
        return false;
    memcpy(&header, bytes, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || index >= header.e_shnum)
        return false;
    bytes = at(m, header.e_shoff + index * sizeof *out, sizeof *out);
    if (bytes)
        memcpy(out, bytes, sizeof *out);
    return bytes != NULL;
}

static bool section_of_type(const struct image *m, unsigned type, Elf64_Shdr *out)
{
    for (size_t i = 0; section(m, i, out); i++)
        if (out->sh_type == type)
            return true;
    return false;
}

static const char *string_at(const struct image *m, const Elf64_Shdr *strings, size_t offset)
{
    const char *text = offset < strings->sh_size ? at(m, strings->sh_offset + offset, 1) : NULL;
    return text && memchr(text, '\0', m->size - (size_t)(text - m->bytes)) ? text : NULL;
}

static bool word_in(const char *name, size_t len, const char *words)
{
    for (; *words; words += strcspn(words, " "), words += *words == ' ')
        if (strcspn(words, " ") == len && memcmp(words, name, len) == 0)
            return true;
    return false;
}

void check_needed(const char *file, const char *allowed, struct report *r)
{
    struct image m = {.name = file};
    Elf64_Shdr dynamic, strings;
    char *bytes = read_file(file, &m.size);
    m.bytes = bytes;
    if (!bytes || !section_of_type(&m, SHT_DYNAMIC, &dynamic) || !section(&m, dynamic.sh_link, &strings)) {
        report_add(r, RULE_NEEDED, "%s: no ELF file with a dynamic section", file);
        free(bytes);
        return;
    }
    for (size_t i = 0; i < dynamic.sh_size / sizeof(Elf64_Dyn); i++) {
        const void *entry = at(&m, dynamic.sh_offset + i * sizeof(Elf64_Dyn), sizeof(Elf64_Dyn));
        Elf64_Dyn d;
        if (!entry)
            break;
        memcpy(&d, entry, sizeof d);
        const char *name = d.d_tag == DT_NEEDED ? string_at(&m, &strings, d.d_un.d_val) : NULL;
        const char *end = name ? strstr(name, ".so") : NULL;
        if (name && (!end || !word_in(name, (size_t)(end - name), allowed)))
            report_add(r, RULE_NEEDED, "%s needs %s", file, name);
    }
    free(bytes);
}

/* Calls `each` with every global symbol that the table of `type` defines. */
static void each_defined(const struct image *m, unsigned type, void (*each)(void *ctx, const char *name),
                         void *ctx)
{
    Elf64_Shdr table, strings;
    if (!section_of_type(m, type, &table) || !section(m, table.sh_link, &strings))
        return;
    for (size_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); i++) {
        const void *entry = at(m, table.sh_offset + i * sizeof(Elf64_Sym), sizeof(Elf64_Sym));
        Elf64_Sym s;
        if (!entry)
            return;
        memcpy(&s, entry, sizeof s);
        const char *name = string_at(m, &strings, s.st_name);
        if (name && s.st_shndx != SHN_UNDEF && s.st_shndx != SHN_ABS && ELF64_ST_BIND(s.st_info) != STB_LOCAL)
            each(ctx, name);
    }
}

struct exports {
    const char *file;
    char *header; /* text of hvd.h, or NULL */
    struct report *report;
    char *found; /* every name between spaces */
    size_t used;
};

static bool declared(const char *header, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = header; (p = strstr(p, name)); p += len)
        if (p[len] == '(' && !isalnum((unsigned char)p[-1]) && p[-1] != '_')
            return true;
    return false;
}

static void check_symbol(void *ctx, const char *name)
{
    struct exports *x = ctx;
    size_t len = strlen(name);
    if (strncmp(name, "HVD_", 4) == 0) /* the name of the version itself */
        return;
    x->found = grow(x->found, x->used + len + 3);
    x->used += (size_t)snprintf(x->found + x->used, len + 3, " %s ", name);
    if (strncmp(name, "hvd_", 4) != 0)
        report_add(x->report, RULE_EXPORTS, "%s exports %s", x->file, name);
    else if (x->header && !declared(x->header, name))
        report_add(x->report, RULE_EXPORTS, "%s exports %s, which the header does not declare", x->file,
                   name);
}

/* Every function of the header is there: words hvd_...( at a declaration, that is, not inside a comment. */
static void check_declared(struct exports *x)
{
    char name[128], padded[132];
    for (const char *p = x->header; (p = strstr(p, "hvd_")); p++) {
        size_t len = 0;
        while (len < sizeof name - 1 && (isalnum((unsigned char)p[len]) || p[len] == '_'))
            len++;
        bool starts = p == x->header || (!isalnum((unsigned char)p[-1]) && p[-1] != '_');
        if (!starts || p[len] != '(')
            continue;
        snprintf(name, sizeof name, "%.*s", (int)len, p);
        snprintf(padded, sizeof padded, " %s ", name);
        if (!x->found || !strstr(x->found, padded))
            report_add(x->report, RULE_EXPORTS, "%s does not export %s of the header", x->file, name);
        p += len;
    }
}

static void each_member(struct exports *x, const struct image *archive)
{
    size_t offset = 8;
    while (offset + 60 <= archive->size) {
        char digits[11] = "";
        memcpy(digits, archive->bytes + offset + 48, 10);
        size_t size = strtoul(digits, NULL, 10);
        struct image member = {.name = archive->name, .bytes = archive->bytes + offset + 60, .size = size};
        if (!at(archive, offset + 60, size))
            break;
        each_defined(&member, SHT_SYMTAB, check_symbol, x);
        offset += 60 + size + (size & 1);
    }
}

void check_exports(const char *file, const char *header, struct report *r)
{
    struct image m = {.name = file};
    struct exports x = {.file = file, .report = r};
    size_t size;
    char *bytes = read_file(file, &m.size);
    m.bytes = bytes;
    x.header = header ? read_file(header, &size) : NULL;
    if (bytes && m.size > 8 && memcmp(bytes, "!<arch>\n", 8) == 0)
        each_member(&x, &m);
    else if (bytes)
        each_defined(&m, SHT_DYNSYM, check_symbol, &x);
    if (!x.found)
        report_add(r, RULE_EXPORTS, "%s: not there, or defines nothing", file);
    if (x.header)
        check_declared(&x);
    free(x.found);
    free(x.header);
    free(bytes);
}
