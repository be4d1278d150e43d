#include "tune/cache_folder.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool kept;
static char *folder;

void cache_keep(void) {
    const char *now = getenv("XDG_CACHE_HOME");
    if (kept) return;
    kept = true;
    folder = now ? strdup(now) : NULL;
}

void cache_restore(void) {
    if (folder)
        setenv("XDG_CACHE_HOME", folder, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    free(folder);
    folder = NULL;
    kept = false;
}
