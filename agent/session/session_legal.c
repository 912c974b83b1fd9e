/* The tables know the session's state alone. Checks that need more (is that rank here?) are in
 * channel.c, which takes the messages. When the session begins to end by itself, messages may still
 * be on their way: those are late. */
#include "agent/session/session_legal.h"

#include "agent/session/session.h"
#include "common/protocol/message.h"

#define BODY(name)     HVD__CONTROL__BODY_##name
#define IN(state)      (1u << SESSION_##state)
#define FROM(from, to) LEGAL_STATES(SESSION_##from, SESSION_##to)
#define ENDS           FROM(ENDING, LEAVING)
#define FAILS          (IN(REFUSING) | ENDS)
#define WORKS          (FROM(WAITING, SPAWNING) | FROM(RUNNING, DONE))

static const struct legal_row rows[] = {
    {BODY(HELLO), IN(HELLO), 0, true},
    /* hvdagent attach has heard it, if there was one; it may follow a Hello that was refused. */
    {BODY(GO), 0, FROM(HELLO, OVER), true},
    {BODY(PRELOAD), IN(READY), FAILS, true},
    {BODY(SPAWN), IN(READY), FAILS, true},
    {BODY(SIGNAL), FROM(READY, KILLING), IN(LEAVING), false},
    {BODY(WINDOW), WORKS, FAILS, false},
    {BODY(CREDIT), FROM(WAITING, KILLING), IN(LEAVING), false},
    {BODY(PING), FROM(READY, LEAVING), 0, false},
    {BODY(PONG), FROM(READY, LEAVING), 0, false},
    {BODY(LINKS), WORKS, FAILS, true},
    {BODY(LINK_ORDER), WORKS, FAILS, true},
    {BODY(SESSION_LINKS), WORKS, FAILS, true},
    {BODY(RANK_ENDED), FROM(WAITING, KILLING), IN(LEAVING), false},
    {BODY(TEARDOWN), FROM(READY, KILLING), IN(LEAVING), false},
    {BODY(INSPECT), FROM(WAITING, KILLING), IN(LEAVING), true},
    {BODY(BYE), IN(LEAVING), IN(OVER), true},
};

const struct legal_table session_legal = LEGAL_TABLE(rows, legal_control_name);
