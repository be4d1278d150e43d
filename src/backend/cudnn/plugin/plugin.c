/* The two symbols of libsluice_cudnn, its version and the function that gives its table. */
#include <string.h>

#include "internal.h"

#define ALGO_FUNCTIONS(name, algo)                      \
    static void pack_##name(const sli_call *call) {     \
        sli_cudnn_pack(call, algo);                     \
    }                                                   \
    static void forward_##name(const sli_call *call) {  \
        sli_cudnn_forward(call, algo);                  \
    }                                                   \
    static void backward_##name(const sli_call *call) { \
        sli_cudnn_backward(call, algo);                 \
    }
ALGO_FUNCTIONS(standard, SLI_CUDNN_STANDARD)
ALGO_FUNCTIONS(persist_static, SLI_CUDNN_PERSIST_STATIC)
ALGO_FUNCTIONS(persist_dynamic, SLI_CUDNN_PERSIST_DYNAMIC)
ALGO_FUNCTIONS(small_h, SLI_CUDNN_SMALL_H)

extern const sli_plugin_version sli_cudnn_plugin_version;
__attribute__((visibility("default"))) const sli_plugin_version sli_cudnn_plugin_version =
    SLI_PLUGIN_VERSION(sli_cudnn_plugin);

static sli_cudnn_plugin plugin = {
    .version = SLI_PLUGIN_VERSION(sli_cudnn_plugin),
    .probe = sli_cudnn_probe,
    .pack = {pack_standard, pack_persist_static, pack_persist_dynamic, pack_small_h},
    .forward = {forward_standard, forward_persist_static, forward_persist_dynamic, forward_small_h},
    .backward = {backward_standard, backward_persist_static, backward_persist_dynamic, backward_small_h}};

__attribute__((visibility("default"))) const sli_cudnn_plugin *sli_cudnn_plugin_open(const sli_plugin_host *host,
                                                                                     const sli_cuda_plugin *cuda,
                                                                                     sli_why *why);

/* libsluice calls it once, after it has compared versions. */
const sli_cudnn_plugin *sli_cudnn_plugin_open(const sli_plugin_host *host, const sli_cuda_plugin *cuda, sli_why *why) {
    if (strcmp(cuda->version.text, plugin.version.text) != 0) {
        sli_cudnn_refuse(why, "libsluice_cudnn was built for \"%s\", libsluice_cuda for \"%s\"; install both anew",
                         plugin.version.text, cuda->version.text);
        return NULL;
    }
    sli_cudnn_services = cuda->services;
    if (!sli_cudnn_open_libraries(host, why)) return NULL;
    size_t version = sli_cudnn.cudnnGetVersion();
    if (version < 90000 || version >= 100000) {
        sli_cudnn_refuse(why, "cuDNN %zu.%zu was found, 9 is needed", version / 10000, version / 100 % 100);
        return NULL;
    }
    plugin.cudnn_version = (int)version;
    return &plugin;
}
