/* GPUs as devices: names, invented ones, and what is said where there is none. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/load.h"
#include "test.h"

TEST(cuda_device_invented) {
    static const struct {
        const char *name;
        int capability;
        size_t shared;
    } gpus[] = {{"cuda:sm_80", 80, 163}, {"cuda:sm_86", 86, 99},    {"cuda:sm_89", 89, 99},
                {"cuda:sm_90", 90, 227}, {"cuda:sm_100", 100, 227}, {"cuda:sm_120", 120, 99}};
    sli_caps caps;
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        REQUIRE_OK(sli_cuda_device.caps(gpus[i].name, 3, &caps));
        CHECK(caps.kind == SLI_DEVICE_CUDA && caps.invented && strcmp(caps.name, gpus[i].name) == 0);
        CHECK(caps.compute_capability == gpus[i].capability && caps.shared_memory == gpus[i].shared * 1024);
        CHECK(caps.memory > caps.l2_bytes && caps.multiprocessors > 0 && caps.threads == 1);
        CHECK(caps.cudnn == 91900 && caps.driver == 0 && caps.free_memory == 0);
        sli_device *device = (sli_device *)&caps;
        CHECK_FAILS(sli_cuda_device.open(&caps, NULL, &device), SL_ERR_DEVICE, "invented");
        CHECK(device == NULL);
    }
    REQUIRE_OK(sli_cuda_device.caps("cuda:sm_90", 0, &caps));
    CHECK(caps.multiprocessors == 132);
}

TEST(cuda_device_names) {
    sli_caps caps;
    CHECK_FAILS(sli_cuda_device.caps("cuda:sm_75", 0, &caps), SL_ERR_DEVICE, "sm_80 or newer");
    CHECK_FAILS(sli_cuda_device.caps("cuda:sm_91", 0, &caps), SL_ERR_DEVICE, "not known");
    CHECK_FAILS(sli_cuda_device.caps("cuda:sm_", 0, &caps), SL_ERR_DEVICE, "not known");
    static const char *const unknown[] = {"cuda:", "cuda:a", "cuda:0a", "cuda:-1", "cuda:+1", "cuda:99999999999999",
                                          "cudax"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        CHECK_FAILS(sli_cuda_device.caps(unknown[i], 0, &caps), SL_ERR_UNKNOWN, unknown[i]);
    CHECK_FAILS(sli_cuda_device.caps("cuda:999", 0, &caps), SL_ERR_DEVICE, "cuda:999");
}

/* Each line of `sluice devices` has a name that can be asked for, and a sentence. */
TEST(cuda_device_describes_itself) {
    char name[64], text[512];
    bool usable;
    int lines = 0;
    for (; sli_cuda_device.describe(lines, name, sizeof name, text, sizeof text, &usable); lines++) {
        sli_caps caps;
        CHECK(strncmp(name, "cuda", 4) == 0 && strlen(text) > 10 && !strchr(text, '\n'));
        sl_status status = sli_cuda_device.caps(name, 0, &caps);
        CHECK((status == SL_OK) == usable);
        if (status == SL_OK) {
            CHECK(caps.index == lines && !caps.invented && caps.driver >= SLI_DRIVER_NEEDED &&
                  caps.compute_capability >= 80);
            CHECK(caps.free_memory > 0 && caps.free_memory <= caps.memory && caps.shared_memory >= 48 * 1024);
            CHECK(strstr(text, "SMs") && strstr(text, "driver") && strstr(text, "cuDNN"));
        } else {
            CHECK(strstr(sl_error_detail(), "cuda"));
        }
    }
    CHECK(lines >= 1);
    CHECK(lines == 1 || lines == sli_cuda_driver().devices);
}

TEST(cuda_device_says_why_it_is_missing) {
    sli_why why = {""};
    if (sli_cuda_get(&why)) test_skip("there is a GPU");
    CHECK(why.text[0] != 0);
    sli_caps caps;
    CHECK_FAILS(sli_cuda_device.caps("cuda:0", 0, &caps), SL_ERR_DEVICE, why.text);
    CHECK_FAILS(sli_cuda_device.caps("cuda", 0, &caps), SL_ERR_DEVICE, why.text);
    sli_why cudnn = {""};
    CHECK(sli_cudnn_get(&cudnn) == NULL && strcmp(cudnn.text, why.text) == 0);
    REQUIRE_OK(sli_cuda_device.caps("cuda:sm_90", 0, &caps));
    caps.invented = false;
    sli_device *device;
    CHECK_FAILS(sli_cuda_device.open(&caps, NULL, &device), SL_ERR_DEVICE, why.text);
}

static bool takes(sl_dtype dtype, sli_why *why) {
    const sli_problem problem = {.op = SLI_OP_DENSE, .dtype = dtype};
    return sli_cuda_dtype(&problem, why);
}

TEST(cuda_rows_know_their_precisions) {
    sli_why why;
    CHECK(takes(SL_F32, &why) && takes(SL_TF32, &why) && takes(SL_BF16, &why) && takes(SL_F16, &why));
    CHECK(takes(SL_F32X3, &why));
    CHECK(!takes(SL_F64, &why) && strstr(why.text, "f64"));
    CHECK(!takes(SL_I8, &why) && strstr(why.text, "i8"));
}

/* Every op has a row, every row belongs to the GPU, and no two have one name. */
TEST(cuda_rows_cover_every_op) {
    bool found[SLI_OP_COUNT] = {false};
    for (const sli_kernel *const *row = sli_cuda_kernels; *row; row++) {
        CHECK((*row)->device == SLI_DEVICE_CUDA && strncmp((*row)->name, "cuda:", 5) == 0);
        CHECK((*row)->eligible && (*row)->forward && (*row)->cost);
        found[(*row)->op] = true;
    }
    for (int op = 0; op < SLI_OP_COUNT; op++)
        if (!found[op]) test_fail(__FILE__, __LINE__, "no row of the GPU computes %s", sli_op_name((sli_op)op));
}
