/* The tables know the state of the host alone. Checks that need more (is that rank there? has anybody asked?)
 * are in dispatch.c, which takes the messages. A host that is LEAVING has said Ended, or was given up before
 * it had welcomed us. Processes that its session could not end may die behind Ended; it tells of them. */
#include "launcher/host/host_legal.h"

#include "launcher/host/host.h"

#define BODY(name) HVD__CONTROL__BODY_##name
#define IN(state)  (1u << HOST_##state)
#define BEGUN      (IN(RUNNING) | IN(ENDING))
#define WELCOMED   (IN(READY) | BEGUN)

static const struct legal_row rows[] = {
    {BODY(WELCOME), IN(GREETING), IN(LEAVING), true},
    {BODY(PING), WELCOMED, IN(GREETING) | IN(LEAVING), false},
    {BODY(PONG), WELCOMED, IN(LEAVING), false},
    {BODY(NOTICE), WELCOMED | IN(LEAVING), IN(GREETING), false},
    /* A session that refuses the hello says so as a fault, and in its last words, which are what is told. */
    {BODY(FAULT), WELCOMED, IN(GREETING) | IN(LEAVING), false},
    {BODY(CREDIT), WELCOMED, IN(LEAVING), false},
    {BODY(PRELOADED), IN(READY), IN(ENDING), true},
    {BODY(REFUSED), WELCOMED, 0, true},
    {BODY(SPAWNED), BEGUN, 0, false},
    {BODY(EXITED), BEGUN, IN(LEAVING), false},
    {BODY(GAVE_UP), BEGUN, IN(LEAVING), false},
    {BODY(WAITS), BEGUN, IN(LEAVING), false},
    {BODY(STAGE), BEGUN, IN(LEAVING), false},
    {BODY(ENTERED), BEGUN, IN(LEAVING), false},
    {BODY(UNREACHABLE), BEGUN, IN(LEAVING), false},
    {BODY(RESIZE), BEGUN, IN(LEAVING), false},
    {BODY(LEAVE), BEGUN, IN(LEAVING), false},
    {BODY(LINK), BEGUN, 0, true},
    {BODY(LINK_ORDER), BEGUN, IN(LEAVING), true},
    {BODY(SESSION_LINK), BEGUN, 0, true},
    {BODY(LINKS_LOST), BEGUN, 0, true},
    {BODY(WHERE), BEGUN, 0, false},
    {BODY(INSPECTED), BEGUN, 0, true},
    {BODY(TIMELINE_PARTS), IN(ENDING), IN(LEAVING), true},
    {BODY(STATUS), WELCOMED, IN(LEAVING), false},
    {BODY(FLIGHT), BEGUN, IN(LEAVING), false},
    {BODY(SAMPLES), BEGUN, IN(LEAVING), false},
    {BODY(ENDED), WELCOMED, 0, true},
    {BODY(LEASE_WAITING), IN(GREETING), IN(LEAVING), false},
    {BODY(LEASE_HELD), IN(GREETING), IN(LEAVING), true},
    {BODY(LEASE_REFUSAL), IN(GREETING), IN(LEAVING), true},
};

const struct legal_table host_legal = LEGAL_TABLE(rows, legal_control_name);

bool host_legal_is_lease(unsigned body)
{
    return body == BODY(LEASE_WAITING) || body == BODY(LEASE_HELD) || body == BODY(LEASE_REFUSAL);
}
