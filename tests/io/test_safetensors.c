/* The safetensors reader and writer: src/io/safetensors.c, safetensors_write.c. */
#include "io/safetensors.h"
#include "io/io_helpers.h"

static const float MATRIX[6] = {1, 2, 3, 4, 5, 6};
static const double WIDE[2] = {1.0 / 3, -2};
static const uint8_t SMALL[3] = {7, 8, 9};

static void write_sample(const char *path) {
    const sli_tensor_source tensors[] = {
        {.name = "small", .dtype = "U8", .rank = 1, .shape = {3}, .data = SMALL},
        {.name = "matrix", .dtype = "F32", .rank = 2, .shape = {2, 3}, .data = MATRIX},
        {.name = "none", .dtype = "F32", .rank = 2, .shape = {0, 3}},
        {.name = "wide", .dtype = "F64", .rank = 1, .shape = {2}, .data = WIDE},
        {.name = "scalar", .dtype = "I32", .rank = 0, .data = &(int32_t){42}},
    };
    const char *metadata[] = {"format", "test", "quote", "a \"b\" \\ \n\t\x01 \xc3\xa9", NULL};
    REQUIRE_OK(sli_safetensors_write(NULL, path, tensors, 5, metadata));
}

TEST(io_safetensors_round_trip) {
    const char *path = io_path(test_folder(), "a.safetensors");
    write_sample(path);
    size_t size;
    char *bytes = io_read_file(path, &size);
    sli_safetensors file;
    REQUIRE_OK(sli_safetensors_parse(NULL, bytes, size, path, &file));
    CHECK(file.tensor_count == 5 && file.metadata_count == 2);
    CHECK(!strcmp(sli_safetensors_metadata(&file, "format"), "test"));
    CHECK(!strcmp(sli_safetensors_metadata(&file, "quote"), "a \"b\" \\ \n\t\x01 \xc3\xa9"));
    CHECK(!sli_safetensors_metadata(&file, "none"));
    CHECK(sli_safetensors_find(&file, "other") == -1);
    const sl_tensor_info *matrix = &file.tensors[sli_safetensors_find(&file, "matrix")];
    CHECK(!strcmp(matrix->dtype, "F32") && matrix->rank == 2 && matrix->shape[0] == 2 && matrix->shape[1] == 3);
    CHECK(matrix->bytes == sizeof MATRIX && !memcmp(matrix->data, MATRIX, sizeof MATRIX));
    CHECK((uintptr_t)((const char *)matrix->data - bytes) % 4 == 0);
    const sl_tensor_info *wide = &file.tensors[sli_safetensors_find(&file, "wide")];
    CHECK(wide == &file.tensors[0] && !memcmp(wide->data, WIDE, sizeof WIDE)); /* wide elements come first */
    CHECK(((const char *)wide->data - bytes) % 8 == 0);
    CHECK(file.tensors[sli_safetensors_find(&file, "none")].bytes == 0);
    CHECK(file.tensors[sli_safetensors_find(&file, "scalar")].rank == 0);
    sli_safetensors_free(&file);
    free(bytes);
}

/* Cut at every byte: always a sentence, never a crash. The copy has exactly the cut size, for the address sanitizer. */
TEST(io_safetensors_truncated) {
    const char *path = io_path(test_folder(), "a.safetensors");
    write_sample(path);
    size_t size;
    char *bytes = io_read_file(path, &size);
    for (size_t cut = 0; cut < size; cut++) {
        char *part = malloc(cut ? cut : 1);
        memcpy(part, bytes, cut);
        sli_safetensors file;
        CHECK_FAILS(sli_safetensors_parse(NULL, part, cut, "m.safetensors", &file), SL_ERR_FILE, "m.safetensors: ");
        free(part);
    }
    free(bytes);
}

/* Every byte changed: an error or a readable file, never a crash. */
TEST(io_safetensors_flipped) {
    const char *path = io_path(test_folder(), "a.safetensors");
    write_sample(path);
    size_t size;
    char *bytes = io_read_file(path, &size);
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (char)(1 << bit);
            sli_safetensors file;
            sl_status status = sli_safetensors_parse(NULL, bytes, size, "m", &file);
            CHECK(status == SL_OK || status == SL_ERR_FILE);
            if (status == SL_OK) sli_safetensors_free(&file);
            bytes[i] ^= (char)(1 << bit);
        }
    free(bytes);
}

/* Parses a header with `data_bytes` zeros behind it. */
static sl_status parse_header(const char *header, size_t data_bytes) {
    size_t length = strlen(header);
    uint8_t *bytes = calloc(8 + length + data_bytes, 1);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    sli_safetensors file;
    sl_status status = sli_safetensors_parse(NULL, bytes, 8 + length + data_bytes, "m", &file);
    if (status == SL_OK) sli_safetensors_free(&file);
    free(bytes);
    return status;
}

#define T(shape, begin, end) "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

TEST(io_safetensors_good_headers) {
    REQUIRE_OK(parse_header("{}", 0));
    REQUIRE_OK(parse_header("{\"a\":" T("[2]", 0, 8) "}    ", 8));
    REQUIRE_OK(parse_header("{\"b\":" T("[1]", 8, 12) ",\"a\":" T("[2]", 0, 8) "}", 12));
    REQUIRE_OK(parse_header("{\"e\":" T("[0]", 8, 8) ",\"b\":" T("[1]", 8, 12) ",\"a\":" T("[2]", 0, 8) "}", 12));
    REQUIRE_OK(parse_header("{\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}}", 2));
}

TEST(io_safetensors_bad_headers) {
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } CASES[] = {
        {"{]", 0, "line 1 column 2"},
        {"{\"a\":1}", 0, "entry \"a\" is not an object"},
        {"{\"a\":" T("[2]", 0, 8) ",\"a\":" T("[2]", 0, 8) "}", 8, "duplicate"},
        {"{\"a\":" T("[2]", 0, 8) "}", 7, "claims bytes 0 to 8 of 7"},
        {"{\"a\":" T("[2]", 0, 8) "}", 9, "the last 1 bytes belong to no tensor"},
        {"{\"a\":" T("[2]", 8, 0) "}", 8, "claims bytes"},
        {"{\"a\":" T("[2]", -8, 0) "}", 8, "claims bytes"},
        {"{\"a\":" T("[3]", 0, 8) "}", 8, "needs 12 bytes and has 8"},
        {"{\"a\":" T("[-2]", 0, 8) "}", 8, "dimension 0 of tensor \"a\" is not a size"},
        {"{\"a\":" T("[2.0]", 0, 8) "}", 8, "is not a size"},
        {"{\"a\":" T("[4611686018427387904,4]", 0, 0) "}", 0, "too large"},
        {"{\"a\":" T("[9223372036854775807]", 0, 8) "}", 8, "too large"},
        {"{\"a\":" T("[1,1,1,1,1,1,1,1,2]", 0, 8) "}", 8, "9 dimensions"},
        {"{\"a\":" T("2", 0, 8) "}", 8, "has no shape"},
        {"{\"a\":" T("[2]", 0, 8) ",\"b\":" T("[2]", 4, 12) "}", 12, "\"b\" overlaps \"a\""},
        {"{\"a\":" T("[2]", 0, 8) ",\"b\":" T("[1]", 12, 16) "}", 16, "bytes 8 to 12 belong to no tensor"},
        {"{\"a\":{\"dtype\":\"F8_E8M0\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "\"a\" has the dtype \"F8_E8M0\", which is none"},
        {"{\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "\"a\" has no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 0, "no data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}}", 8, "no data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, "does not know"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ \"a\" is not a string"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"a\":\"\xff\"}", 0, "JSON"},
        {"{\"a\\u0000b\":{}}", 0, "JSON"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        CHECK_FAILS(parse_header(CASES[i].header, CASES[i].data), SL_ERR_FILE, CASES[i].says);
}

TEST(io_safetensors_not_one) {
    sli_safetensors file;
    const char text[] = "This is a text, no model at all.";
    CHECK_FAILS(sli_safetensors_parse(NULL, text, sizeof text, "m", &file), SL_ERR_FILE, "not a model file");
    static const char stream[32] = "SLUICESM";
    CHECK_FAILS(sli_safetensors_parse(NULL, stream, sizeof stream, "m", &file), SL_ERR_FILE, "a stream model");
    uint8_t longer[16] = {200, 0, 0, 0, 0, 0, 0, 0, '{'};
    CHECK_FAILS(sli_safetensors_parse(NULL, longer, sizeof longer, "m", &file), SL_ERR_FILE, "truncated: the header");
}

static sl_status produce_too_little(const sli_tensor_source *source, sli_atomic_file *file) {
    return sli_atomic_append(file, source->context, 3);
}

TEST(io_safetensors_writer_refuses) {
    const char *folder = test_folder(), *path = io_path(folder, "a");
    sli_tensor_source twice[] = {{.name = "a", .dtype = "U8", .rank = 1, .shape = {3}, .data = SMALL},
                                 {.name = "a", .dtype = "U8", .rank = 1, .shape = {3}, .data = SMALL}};
    CHECK_FAILS(sli_safetensors_write(NULL, path, twice, 2, NULL), SL_ERR_USAGE, "\"a\" is given twice");
    twice[0].dtype = "F31";
    CHECK_FAILS(sli_safetensors_write(NULL, path, twice, 1, NULL), SL_ERR_USAGE, "cannot be written");
    twice[0].dtype = "F32";
    twice[0].shape[0] = -1;
    CHECK_FAILS(sli_safetensors_write(NULL, path, twice, 1, NULL), SL_ERR_USAGE, "cannot be written");
    sli_tensor_source little = {
        .name = "a", .dtype = "F32", .rank = 1, .shape = {1}, .produce = produce_too_little, .context = (void *)MATRIX};
    CHECK_FAILS(sli_safetensors_write(NULL, path, &little, 1, NULL), SL_ERR_INTERNAL, "wrote 3 bytes instead of 4");
    const char *double_key[] = {"k", "1", "k", "2", NULL}, *not_utf8[] = {"k", "\xff", NULL}, *odd[] = {"k", NULL};
    CHECK_FAILS(sli_safetensors_write(NULL, path, NULL, 0, double_key), SL_ERR_USAGE, "\"k\" is given twice");
    CHECK_FAILS(sli_safetensors_write(NULL, path, NULL, 0, not_utf8), SL_ERR_INPUT, "not valid UTF-8");
    CHECK_FAILS(sli_safetensors_write(NULL, path, NULL, 0, odd), SL_ERR_USAGE, "has no value");
    CHECK(io_count_files(folder) == 0);
    CHECK_FAILS(sli_safetensors_write(NULL, "/dev/full", NULL, 0, NULL), SL_ERR_IO, "No space left");
}
