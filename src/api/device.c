/* sl_device_name: what this machine has, and what is missing for the rest. */
#include "core/device.h"

#include <string.h>

const char *sl_device_name(int index, const char **detail, int *usable) {
    static _Thread_local char name[64], text[1024];
    if (index < 0) return NULL;
    for (const sli_device_ops *const *ops = sli_registry_get()->devices; *ops; ops++) {
        if (strcmp((*ops)->name, "far") == 0) continue; /* the test device */
        bool fine = false;
        for (int line = 0; (*ops)->describe(line, name, sizeof name, text, sizeof text, &fine); line++) {
            if (index-- > 0) continue;
            if (detail) *detail = text;
            if (usable) *usable = fine;
            return name;
        }
    }
    return NULL;
}

const char *sl_version(void) {
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
    return TEXT(SL_VERSION_MAJOR) "." TEXT(SL_VERSION_MINOR) "." TEXT(SL_VERSION_PATCH);
}
