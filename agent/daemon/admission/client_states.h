/* The states of a connection, and what becomes of it: between client.c and decide.c. */
#ifndef HVD_AGENT_DAEMON_ADMISSION_CLIENT_STATES_H
#define HVD_AGENT_DAEMON_ADMISSION_CLIENT_STATES_H

enum client_state {
    CLIENT_READING,
    CLIENT_DECIDING,
    CLIENT_WAITING,
    CLIENT_STARTING,
    CLIENT_CHECKING,
    CLIENT_CLOSED
};
enum client_event {
    EV_REQUEST,
    EV_BROKEN,
    EV_LATE,
    EV_ADMITTED,
    EV_QUEUED,
    EV_REFUSED,
    EV_ASKED,
    EV_STARTED,
    EV_FAILED,
    EV_CHECK
};

#endif
