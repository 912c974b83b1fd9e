int worker_start(void);
