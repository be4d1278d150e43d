/* NumPy arrays: src/io/npy.c. */
#include "io/npy.h"
#include "io/io_helpers.h"

/* An npy file of version 1, 2 or 3 in a block of exactly its size. */
static uint8_t *make(int version, const char *header, const void *data, size_t data_bytes, size_t *size) {
    size_t length = strlen(header), head = version == 1 ? 10 : 12;
    uint8_t *bytes = malloc(head + length + data_bytes);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)version;
    bytes[7] = 0;
    for (size_t i = 8; i < head; i++) bytes[i] = (uint8_t)(length >> (8 * (i - 8)));
    memcpy(bytes + head, header, length);
    if (data_bytes) memcpy(bytes + head + length, data, data_bytes);
    *size = head + length + data_bytes;
    return bytes;
}

static sl_status read_made(int version, const char *header, const void *data, size_t data_bytes, sl_array *array) {
    size_t size;
    uint8_t *bytes = make(version, header, data, data_bytes, &size);
    sl_status status = sl_npy_read_memory(NULL, bytes, size, array);
    free(bytes);
    return status;
}

static const float VALUES[6] = {1, 2, 3, 4, 5, 6};

TEST(io_npy_round_trip) {
    const char *path = io_path(test_folder(), "x.npy");
    static const sl_array_type TYPES[] = {SL_ARRAY_F32, SL_ARRAY_F64, SL_ARRAY_I32,
                                          SL_ARRAY_I64, SL_ARRAY_U8,  SL_ARRAY_BOOL};
    uint8_t data[48];
    for (int i = 0; i < 48; i++) data[i] = (uint8_t)(i % 2);
    for (int t = 0; t < 6; t++)
        for (int rank = 0; rank <= 8; rank++) {
            sl_array in = {.type = TYPES[t], .rank = rank, .data = data}, out;
            size_t elements = 1;
            for (int i = 0; i < rank; i++) {
                in.shape[i] = i == 0 ? 3 : i == 1 ? 2 : 1;
                elements *= (size_t)in.shape[i];
            }
            in.bytes = elements * sli_array_type_bytes(TYPES[t]);
            REQUIRE_OK(sl_npy_write(path, &in));
            REQUIRE_OK(sl_npy_read(NULL, path, &out));
            CHECK(out.type == in.type && out.rank == rank && !memcmp(out.shape, in.shape, sizeof in.shape));
            CHECK(out.bytes == in.bytes && !memcmp(out.data, data, in.bytes));
            sl_array_free(&out);
            CHECK(!out.data);
        }
}

TEST(io_npy_versions_and_forms) {
    static const char *const HEADERS[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n",
        "{\"shape\": (2, 3), \"descr\": \"=f4\", \"fortran_order\": False}",
        "{'fortran_order': False, 'descr': '<f4', 'shape': (2L, 3L,)}\n",
    };
    for (int version = 1; version <= 3; version++)
        for (int i = 0; i < 3; i++) {
            sl_array array;
            REQUIRE_OK(read_made(version, HEADERS[i], VALUES, sizeof VALUES, &array));
            CHECK(array.type == SL_ARRAY_F32 && array.rank == 2 && array.shape[0] == 2 && array.shape[1] == 3);
            CHECK(!memcmp(array.data, VALUES, sizeof VALUES));
            sl_array_free(&array);
        }
    sl_array array;
    REQUIRE_OK(read_made(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 6), }", VALUES, 24, &array));
    sl_array_free(&array); /* one long dimension: both orders are the same */
    REQUIRE_OK(read_made(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 6), }", NULL, 0, &array));
    CHECK(array.bytes == 0 && array.rank == 2);
    sl_array_free(&array);
    REQUIRE_OK(read_made(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", VALUES, 4, &array));
    CHECK(array.rank == 0 && array.bytes == 4);
    sl_array_free(&array);
    const uint8_t truths[3] = {0, 1, 200};
    REQUIRE_OK(read_made(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", truths, 3, &array));
    CHECK(((uint8_t *)array.data)[2] == 1);
    sl_array_free(&array);
}

TEST(io_npy_bad) {
#define HEAD(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"
    static const struct {
        const char *header;
        sl_status status;
        const char *says;
    } CASES[] = {
        {HEAD("'<f4'", "True", "(2, 3)"), SL_ERR_INPUT, "np.ascontiguousarray(x).astype(np.float32)"},
        {HEAD("'>f4'", "False", "(2, 3)"), SL_ERR_INPUT, "dtype '>f4' are not read; convert: np.ascontiguousarray(x)"},
        {HEAD("'<f2'", "False", "(2, 3)"), SL_ERR_INPUT, "dtype '<f2'"},
        {HEAD("'|O'", "False", "(2, 3)"), SL_ERR_INPUT, "dtype '|O'"},
        {HEAD("''", "False", "(2, 3)"), SL_ERR_INPUT, "dtype ''"},
        {HEAD("[('a', '<f4')]", "False", "(6,)"), SL_ERR_INPUT, "named fields"},
        {HEAD("'<f4'", "Maybe", "(2, 3)"), SL_ERR_FILE, "neither True nor False"},
        {HEAD("'<f4'", "False", "(2, 4)"), SL_ERR_FILE,
         "truncated npy file: the array needs 32 bytes and 24 are there"},
        {HEAD("'<f4'", "False", "(2, 2)"), SL_ERR_FILE, "8 bytes follow the array"},
        {HEAD("'<f4'", "False", "(2, -3)"), SL_ERR_FILE, "no number"},
        {HEAD("'<f4'", "False", "(2 3)"), SL_ERR_FILE, "no comma"},
        {HEAD("'<f4'", "False", "2"), SL_ERR_FILE, "not a tuple"},
        {HEAD("'<f4'", "False", "(1,1,1,1,1,1,1,1,6)"), SL_ERR_FILE, "more than 8 dimensions"},
        {HEAD("'<f4'", "False", "(9223372036854775808,)"), SL_ERR_FILE, "too large"},
        {HEAD("'<f4'", "False", "(4611686018427387904, 4)"), SL_ERR_FILE, "too large"},
        {HEAD("'<f4'", "False", "(9223372036854775807,)"), SL_ERR_FILE, "too large"},
        {"{'descr': '<f4', 'shape': (2, 3)}", SL_ERR_FILE, "is missing"},
        {"{'descr': '<f4', 'descr': '<f4'}", SL_ERR_FILE, "one twice"},
        {"{'descr': '<f4', 'size': 3}", SL_ERR_FILE, "a key other than"},
        {"{'descr': '<f4' 'shape': 3}", SL_ERR_FILE, "does not end"},
        {"{descr: 3}", SL_ERR_FILE, "a key is missing"},
        {"", SL_ERR_FILE, "not a dictionary"},
        {HEAD("'<f4'", "False", "(2, 3)") " x", SL_ERR_FILE, "something follows"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        sl_array array;
        CHECK_FAILS(read_made(1, CASES[i].header, VALUES, sizeof VALUES, &array), CASES[i].status, CASES[i].says);
        CHECK(!array.data && !array.rank);
    }
    sl_array array;
    CHECK_FAILS(read_made(4, "{}", NULL, 0, &array), SL_ERR_FILE, "version 4.0 is not known");
    CHECK_FAILS(sl_npy_read_memory(NULL, "PK\x03\x04 a zip file", 15, &array), SL_ERR_FILE, "not np.savez");
    uint8_t huge[16] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0xff, 0xff, 0xff, 0xff};
    CHECK_FAILS(sl_npy_read_memory(NULL, huge, sizeof huge, &array), SL_ERR_FILE, "claims 4294967295 bytes");
}

TEST(io_npy_truncated) {
    size_t size;
    uint8_t *bytes = make(1, HEAD("'<f4'", "False", "(2, 3)"), VALUES, sizeof VALUES, &size);
    const char *path = io_path(test_folder(), "cut.npy");
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = malloc(cut ? cut : 1);
        memcpy(part, bytes, cut);
        sl_array array;
        CHECK_FAILS(sl_npy_read_memory(NULL, part, cut, &array), SL_ERR_FILE, cut ? NULL : "is empty");
        io_write_file(path, part, cut);
        CHECK_FAILS(sl_npy_read(NULL, path, &array), SL_ERR_FILE, "cut.npy: ");
        free(part);
    }
    free(bytes);
}

TEST(io_npy_paths) {
    const char *folder = test_folder();
    sl_array array;
    CHECK_FAILS(sl_npy_read(NULL, io_path(folder, "none.npy"), &array), SL_ERR_FILE, "there is no such npy file");
    CHECK_FAILS(sl_npy_read(NULL, folder, &array), SL_ERR_FILE, "is a folder");
    CHECK_FAILS(sl_npy_read(NULL, NULL, &array), SL_ERR_USAGE, "path is NULL");
    sl_array bad = {.type = SL_ARRAY_F32, .rank = 1, .shape = {3}, .bytes = 12};
    CHECK_FAILS(sl_npy_write(io_path(folder, "x.npy"), &bad), SL_ERR_USAGE, "do not fit");
    bad.data = (void *)VALUES;
    bad.bytes = 11;
    CHECK_FAILS(sl_npy_write(io_path(folder, "x.npy"), &bad), SL_ERR_USAGE, "do not fit");
    bad.bytes = 12;
    CHECK_FAILS(sl_npy_write("/dev/full", &bad), SL_ERR_IO, "No space left");
    CHECK(io_count_files(folder) == 0);
}
