#include "agent/guard/remove_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int remove_tree(int at, const char *name, int deep)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(d), entry->d_name, 0) < 0 && errno == EISDIR && deep > 0)
            (void)remove_tree(dirfd(d), entry->d_name, deep - 1);
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    return unlinkat(at, name, AT_REMOVEDIR);
}
