#include <string.h>

int text_exit(void);
int my_strcpy(void);
