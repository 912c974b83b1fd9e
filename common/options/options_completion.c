/* The script of options_print_bash: what the table knows of each option's value, in the words of bash.
 *
 * bash hands over the line cut at = and : as well, so `--tag=ra` are three words and `a:2,b` too; the script
 * walks over the words up to the cursor and knows by then whether it stands in an option's value or in the
 * command. Hosts come from the hostfile that the line, or its variable, names. */
#include <string.h>

#include "common/options/options_table.h"

static const char begin[] =
    "# bash completion of %1$s: source <(%1$s --bash-completion)\n"
    "_%1$s_hosts() { # CURRENT WORD: after its last comma a name from the hostfile\n"
    "    local file=${HVDRUN_HOSTFILE-} last=${1##*,} i\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        case ${COMP_WORDS[i]} in\n"
    "        -hostfile | --hostfile)\n"
    "            [ \"${COMP_WORDS[i + 1]-}\" != = ] || i=$((i + 1))\n"
    "            file=${COMP_WORDS[i + 1]-}\n"
    "            ;;\n"
    "        esac\n"
    "    done\n"
    "    [ -f \"$file\" ] || return 0\n"
    "    mapfile -t COMPREPLY < <(compgen -P \"${1%%\"$last\"}\" \\\n"
    "        -W \"$(sed -E 's/#.*//; s/^[[:space:]]*([^[:space:]:,]+).*/\\1/' \"$file\")\" -- \"$last\")\n"
    "    compopt -o nospace\n"
    "}\n"
    "_%1$s() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} flag= word i=1 next\n"
    "    [ \"$cur\" != = ] && [ \"$cur\" != : ] || cur=\n"
    "    COMPREPLY=()\n"
    "    while [ $i -lt $COMP_CWORD ]; do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        case $word in\n";

static const char value_words[] =
    ")\n"
    "            next=$((i + 1))\n"
    "            [ \"${COMP_WORDS[next]-}\" != = ] || next=$((next + 1))\n"
    "            while [ \"${COMP_WORDS[next + 1]-}\" = : ]; do next=$((next + 2)); done\n"
    "            if [ $next -ge $COMP_CWORD ] || [ $((next - 1)) = $COMP_CWORD ]; then\n"
    "                flag=$word\n"
    "                break\n"
    "            fi\n"
    "            i=$next\n"
    "            ;;\n"
    "        --) flag=command i=$((i + 1)) && break ;;\n"
    "        -*) [ \"${COMP_WORDS[i + 1]-}\" != = ] || { flag=$word && i=$((i + 2)); } ;;\n"
    "        *) flag=command && break ;;\n"
    "        esac\n"
    "        i=$((i + 1))\n"
    "    done\n"
    "    [ $i -lt $COMP_CWORD ] || [ \"$flag\" != command ] || [ \"${cur:0:1}\" = - ] || flag=first\n"
    "    case $flag in\n";

/* Of a program with commands of its own. */
static const char end_of_commands[] =
    "    '' | first | -*)\n"
    "        if [ \"${cur:0:1}\" = - ]; then\n"
    "            mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\")\n"
    "        elif [ -z \"$flag\" ] || [ \"$flag\" = first ]; then\n"
    "            mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$cur\")\n"
    "        fi\n"
    "        ;;\n"
    "    command) mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\") ;;\n"
    "    esac\n"
    "}\n"
    "complete -F _%1$s %1$s\n";

static const char end[] =
    "    command)\n"
    "        if declare -F _command_offset > /dev/null; then _command_offset $i; else compopt -o default; "
    "fi\n"
    "        ;;\n"
    "    '' | first | -*)\n"
    "        if [ \"${cur:0:1}\" = - ]; then\n"
    "            mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\")\n"
    "        elif [ -z \"$flag\" ] || [ \"$flag\" = first ]; then\n"
    "            compopt -o filenames\n"
    "            mapfile -t COMPREPLY < <(compgen -A command -- \"$cur\"; compgen -f -- \"$cur\")\n"
    "        fi\n"
    "        ;;\n"
    "    esac\n"
    "}\n"
    "complete -F _%1$s %1$s\n";

static bool takes_word(const struct option_spec *spec)
{
    return spec->type != OPTION_FLAG && spec->type != OPTION_ACTION && !option_is_optional(spec);
}

/* The spellings of a row as a pattern of case. */
static void print_pattern(const struct option_spec *spec, const char *between, FILE *out)
{
    struct option_name flag = {0};
    for (const char *before = ""; option_next_name(spec->flags, &flag); before = between)
        fprintf(out, "%s%.*s", before, (int)flag.len, flag.text);
}

void option_print_words(const char *words, FILE *out)
{
    for (; *words; words++)
        fputc(*words == '|' ? ' ' : *words, out);
}

static void print_choice(const char *words, FILE *out)
{
    fputs("mapfile -t COMPREPLY < <(compgen -W \"", out);
    option_print_words(words, out);
    fputs("\" -- \"$cur\")", out);
}

/* Puts the completion of the option's value, when anything is known of it. */
static void print_value(const struct options_program *program, const struct option_spec *spec, FILE *out)
{
    const char *metavar = spec->metavar ? spec->metavar : "";
    bool file = strcmp(metavar, "FILE") == 0, directory = strcmp(metavar, "DIRECTORY") == 0;
    bool hosts = strncmp(metavar, "HOST", 4) == 0;
    if (!spec->words && !file && !directory && !hosts)
        return;
    fputs("    ", out);
    print_pattern(spec, " | ", out);
    fputs(") ", out);
    if (spec->words)
        print_choice(spec->words, out);
    else if (hosts)
        fprintf(out, "_%s_hosts \"$cur\"", program->name);
    else
        fprintf(out, "compopt -o filenames && mapfile -t COMPREPLY < <(compgen -%c -- \"$cur\")",
                file ? 'f' : 'd');
    fputs(" ;;\n", out);
}

static void print_flags(const struct options_program *program, FILE *out)
{
    for (size_t i = 0; i < program->count; i++) {
        fputs(i ? " " : "", out);
        print_pattern(&program->spec[i], " ", out);
    }
}

/* The text with its variables $flags and $commands, and the program's name. */
static void print_end(const struct options_program *program, const char *text, FILE *out)
{
    for (; *text; text++) {
        if (strncmp(text, "$flags", strlen("$flags")) == 0) {
            print_flags(program, out);
            text += strlen("$flags") - 1;
        } else if (strncmp(text, "$commands", strlen("$commands")) == 0) {
            option_print_words(program->commands, out);
            text += strlen("$commands") - 1;
        } else if (strncmp(text, "%1$s", strlen("%1$s")) == 0) {
            fputs(program->name, out);
            text += strlen("%1$s") - 1;
        } else {
            fputc(*text, out);
        }
    }
}

void options_print_bash(const struct options_program *program, FILE *out)
{
    const char *between = "";
    fprintf(out, begin, program->name);
    fputs("        ", out);
    for (size_t i = 0; i < program->count; i++) {
        if (!takes_word(&program->spec[i]))
            continue;
        fputs(between, out);
        print_pattern(&program->spec[i], " | ", out);
        between = " | ";
    }
    fputs(value_words, out);
    for (size_t i = 0; i < program->count; i++)
        print_value(program, &program->spec[i], out);
    print_end(program, program->commands ? end_of_commands : end, out);
}
