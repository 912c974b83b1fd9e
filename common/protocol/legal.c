#include "common/protocol/legal.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/protocol/control.pb-c.h"

void legal_refuse(struct legal *l, const char *peer, const char *message, const char *why)
{
    if (l->refused++ == 0)
        log_warning("%s: its message '%s' was ignored: %s; more like it will be ignored without a word", peer,
                    message, why);
}

bool legal_hears(struct legal *l, const struct legal_table *t, unsigned message, unsigned state,
                 const char *peer, const char *state_name)
{
    size_t i = 0;
    while (i < t->count && t->row[i].message != message)
        i++;
    const struct legal_row *row = i < t->count ? &t->row[i] : NULL;
    uint32_t now = 1u << state;
    bool again = row && row->once && (l->had & 1ull << i);
    if (row && (row->heard & now) && !again) {
        l->had |= 1ull << i;
        return true;
    }
    if (row && (row->late & now) && !again)
        return false;
    char why[120];
    if (again)
        snprintf(why, sizeof why, "there can be one only");
    else if (row)
        snprintf(why, sizeof why, "none is due in state '%s'", state_name);
    else
        snprintf(why, sizeof why, "this side never takes it");
    legal_refuse(l, peer, t->name(message), why);
    return false;
}

void legal_end(const struct legal *l, const char *peer)
{
    if (l->refused > 1)
        log_warning("%s: %" PRIu64 " messages of it were ignored", peer, l->refused);
}

static const char *name_body(const ProtobufCMessageDescriptor *type, unsigned body)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(type, body);
    return f ? f->name : "nothing";
}

const char *legal_control_name(unsigned body)
{
    return name_body(&hvd__control__descriptor, body);
}

const char *legal_engine_name(unsigned body)
{
    return name_body(&hvd__engine__descriptor, body);
}

const char *legal_pmix_name(unsigned kind)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&hvd__pmix__kind__descriptor, (int)kind);
    return v ? v->name : "unknown";
}
