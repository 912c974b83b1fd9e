#include "launcher/transport/transport.h"

const char *transport_phase_name(enum transport_phase phase)
{
    switch (phase) {
    case TRANSPORT_RESOLVE:
        return "resolve";
    case TRANSPORT_CONNECT:
        return "connect";
    case TRANSPORT_HOST_KEY:
        return "host key";
    case TRANSPORT_AUTHENTICATION:
        return "authentication";
    case TRANSPORT_AGENT_START:
        return "agent start";
    }
    return "unknown";
}
