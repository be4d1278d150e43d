/* NumPy's .npy files: see npy.h.
 *   magic "\x93NUMPY", version (major, minor), header length (u16 in version 1, u32 later), header, data
 * The header is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } */
#include "io/npy.h"

#include <stdio.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the file formats here are little-endian and read without swapping"
#endif

static const struct {
    const char *descr;
    sl_array_type type;
    size_t bytes;
} TYPES[] = {{"<f4", SL_ARRAY_F32, 4}, {"<f8", SL_ARRAY_F64, 8}, {"<i4", SL_ARRAY_I32, 4},
             {"<i8", SL_ARRAY_I64, 8}, {"|u1", SL_ARRAY_U8, 1},  {"|b1", SL_ARRAY_BOOL, 1}};
enum { TYPE_COUNT = sizeof TYPES / sizeof *TYPES, MAX_RANK = 8, MAX_HEADER = 1 << 16 };

static int type_index(sl_array_type type) {
    for (int i = 0; i < TYPE_COUNT; i++)
        if (TYPES[i].type == type) return i;
    return -1;
}

size_t sli_array_type_bytes(sl_array_type type) {
    int i = type_index(type);
    return i < 0 ? 0 : TYPES[i].bytes;
}

/* ------------------------------------------------------------------------------------------------- the header -- */
typedef struct header {
    char descr[64];
    bool have_descr, have_order, have_shape, fortran;
    int rank;
    int64_t shape[MAX_RANK];
} header;

typedef struct cursor {
    const char *path, *at, *end;
} cursor;

static sl_status bad_header(const cursor *c, const char *what) {
    return sli_fail(SL_ERR_FILE, "%s: damaged npy header: %s; save the array again with np.save", c->path, what);
}

static void skip_blanks(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

/* Takes `text` if it comes next. */
static bool take(cursor *c, const char *text) {
    skip_blanks(c);
    size_t length = strlen(text);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, text, length) != 0) return false;
    c->at += length;
    return true;
}

/* A quoted string without escapes. */
static bool take_string(cursor *c, char *to, size_t capacity) {
    skip_blanks(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
    const char *quote = memchr(c->at + 1, *c->at, (size_t)(c->end - c->at - 1));
    if (!quote || (size_t)(quote - c->at) > capacity) return false;
    size_t length = (size_t)(quote - c->at) - 1;
    for (size_t i = 0; i < length; i++) { /* printable ASCII only: it may be shown in a sentence */
        char letter = c->at[1 + i];
        if (letter < ' ' || letter > '~') return false;
        to[i] = letter;
    }
    to[length] = 0;
    c->at = quote + 1;
    return true;
}

/* (), (3,), (3, 4); Python 2 wrote 3L. */
static sl_status take_shape(cursor *c, header *h) {
    if (!take(c, "(")) return bad_header(c, "shape is not a tuple");
    for (h->rank = 0; !take(c, ")"); h->rank++) {
        if (h->rank > 0 && !take(c, ",")) return bad_header(c, "shape has no comma between its numbers");
        if (h->rank > 0 && take(c, ")")) return SL_OK;
        if (h->rank == MAX_RANK) return bad_header(c, "more than 8 dimensions");
        skip_blanks(c);
        const char *start = c->at;
        int64_t size = 0;
        for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
            if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, *c->at - '0', &size))
                return bad_header(c, "a dimension is too large");
        if (c->at == start) return bad_header(c, "shape holds something that is no number");
        take(c, "L");
        h->shape[h->rank] = size;
    }
    return SL_OK;
}

static sl_status take_entry(cursor *c, header *h) {
    char key[24];
    if (!take_string(c, key, sizeof key) || !take(c, ":")) return bad_header(c, "a key is missing");
    if (!strcmp(key, "descr") && !h->have_descr) {
        h->have_descr = true;
        SLI_FAIL_IF(!take_string(c, h->descr, sizeof h->descr), SL_ERR_INPUT,
                    "%s: the array has named fields; save one of them: np.save(path, x['NAME'].astype(np.float32))",
                    c->path);
        return SL_OK;
    }
    if (!strcmp(key, "fortran_order") && !h->have_order) {
        h->have_order = true;
        h->fortran = take(c, "True");
        return h->fortran || take(c, "False") ? SL_OK : bad_header(c, "fortran_order is neither True nor False");
    }
    if (!strcmp(key, "shape") && !h->have_shape) {
        h->have_shape = true;
        return take_shape(c, h);
    }
    return bad_header(c, "it has a key other than descr, fortran_order, shape, or one twice");
}

static sl_status parse_header(cursor *c, header *h) {
    memset(h, 0, sizeof *h);
    if (!take(c, "{")) return bad_header(c, "it is not a dictionary");
    while (!take(c, "}")) {
        SLI_TRY(take_entry(c, h));
        if (take(c, ",")) continue;
        if (!take(c, "}")) return bad_header(c, "it does not end");
        break;
    }
    skip_blanks(c);
    if (c->at != c->end) return bad_header(c, "something follows the dictionary");
    if (!h->have_descr || !h->have_order || !h->have_shape)
        return bad_header(c, "descr, fortran_order or shape is missing");
    return SL_OK;
}

/* ----------------------------------------------------------------------------------------------------- reading -- */
/* Reads exactly `count` bytes of the file's head. */
static sl_status read_exactly(sli_input *input, void *to, size_t count) {
    size_t got;
    SLI_TRY(sli_input_read(input, to, count, &got));
    SLI_FAIL_IF(got < count && input->position == 0, SL_ERR_FILE,
                "%s: the npy file is empty; save the array again with np.save", input->path);
    SLI_FAIL_IF(got < count, SL_ERR_FILE, "%s: truncated npy file: it ends after %llu bytes; copy or save it again",
                input->path, (unsigned long long)input->position);
    return SL_OK;
}

static sl_status read_header(sli_input *input, header *h, const sl_allocator *allocator) {
    uint8_t head[12];
    SLI_TRY(read_exactly(input, head, 6));
    SLI_FAIL_IF(memcmp(head, "\x93NUMPY", 6) != 0, SL_ERR_FILE,
                "%s: not an npy file; save the array with np.save (one array, not np.savez)", input->path);
    SLI_TRY(read_exactly(input, head + 6, 4));
    SLI_FAIL_IF(head[6] < 1 || head[6] > 3, SL_ERR_FILE, "%s: npy version %d.%d is not known (1.0 to 3.0 are)",
                input->path, head[6], head[7]);
    size_t length = head[8] | (size_t)head[9] << 8;
    if (head[6] > 1) {
        SLI_TRY(read_exactly(input, head + 10, 2));
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    }
    SLI_FAIL_IF(length > MAX_HEADER, SL_ERR_FILE,
                "%s: the npy header claims %zu bytes; is it a damaged file, or an array of named fields?", input->path,
                length);
    char *text = sli_alloc(allocator, length + 1);
    if (!text) return sli_fail_memory("npy header", length + 1);
    sl_status status = read_exactly(input, text, length);
    cursor c = {input->path, text, text + length};
    if (status == SL_OK) status = parse_header(&c, h);
    sli_free(allocator, text, length + 1);
    return status;
}

/* Type and sizes of the array, nothing allocated yet. */
static sl_status describe(const sli_input *input, const header *h, sl_array *array) {
    int type = -1, wide = 0;
    for (int i = 0; i < TYPE_COUNT; i++) {
        const char *known = TYPES[i].descr, *given = h->descr;
        /* '=' (native) and '|' (no order) say the same where they say anything: one byte has no order. */
        bool order = given[0] == known[0] || (given[0] == '=' && known[0] == '<') || (known[0] == '|' && given[0] != 0);
        if (order && !strcmp(given + 1, known + 1)) type = i;
    }
    SLI_FAIL_IF(type < 0, SL_ERR_INPUT,
                "%s: arrays of dtype '%s' are not read; convert: np.ascontiguousarray(x).astype(np.float32) "
                "(or np.int32 for tokens, labels and lengths)",
                input->path, h->descr);
    size_t elements = 1;
    array->type = TYPES[type].type;
    array->rank = h->rank;
    bool fits = true;
    for (int i = 0; i < h->rank; i++) {
        array->shape[i] = h->shape[i];
        fits = fits && sli_multiply(elements, (size_t)h->shape[i], &elements);
        wide += h->shape[i] > 1;
    }
    SLI_FAIL_IF(!fits || !sli_multiply(elements, TYPES[type].bytes, &array->bytes), SL_ERR_FILE,
                "%s: damaged npy header: the shape is too large; save the array again with np.save", input->path);
    SLI_FAIL_IF(h->fortran && wide > 1, SL_ERR_INPUT,
                "%s: the array is in Fortran order; convert: np.ascontiguousarray(x).astype(np.float32)", input->path);
    return SL_OK;
}

static sl_status read_data(sli_input *input, sl_array *array) {
    uint64_t left = input->size - input->position;
    SLI_FAIL_IF(input->size_known && left < array->bytes, SL_ERR_FILE,
                "%s: truncated npy file: the array needs %zu bytes and %llu are there; copy or save it again",
                input->path, array->bytes, (unsigned long long)left);
    SLI_FAIL_IF(input->size_known && left > array->bytes, SL_ERR_FILE,
                "%s: %llu bytes follow the array; save it again with np.save (one array a file)", input->path,
                (unsigned long long)(left - array->bytes));
    if (array->bytes == 0) return SL_OK;
    array->data = sli_alloc(&array->allocator, array->bytes);
    if (!array->data) return sli_fail_memory("array", array->bytes);
    SLI_TRY(read_exactly(input, array->data, array->bytes));
    uint8_t extra;
    size_t got;
    SLI_TRY(sli_input_read(input, &extra, 1, &got));
    SLI_FAIL_IF(got, SL_ERR_FILE, "%s: more bytes follow the array; save it again with np.save (one array a file)",
                input->path);
    if (array->type == SL_ARRAY_BOOL)
        for (size_t i = 0; i < array->bytes; i++) ((uint8_t *)array->data)[i] = ((uint8_t *)array->data)[i] != 0;
    return SL_OK;
}

static sl_status read_array(const sl_allocator *allocator, sli_input *input, sl_array *array) {
    memset(array, 0, sizeof *array);
    array->allocator = sli_allocator_or_default(allocator);
    header h;
    sl_status status;
    SLI_TRY_GOTO(done, read_header(input, &h, &array->allocator));
    SLI_TRY_GOTO(done, describe(input, &h, array));
    status = read_data(input, array);
done:
    if (status != SL_OK) sli_array_free(array);
    return status;
}

sl_status sli_npy_read(const sl_allocator *allocator, const char *path, sl_array *array) {
    memset(array, 0, sizeof *array);
    sli_input input;
    SLI_TRY(sli_input_open(&input, path, "npy file"));
    sl_status status = read_array(allocator, &input, array);
    sli_input_close(&input);
    return status;
}

sl_status sli_npy_read_memory(const sl_allocator *allocator, const void *bytes, size_t size, sl_array *array) {
    sli_input input;
    sli_input_open_memory(&input, bytes, size, "npy file");
    return read_array(allocator, &input, array);
}

void sli_array_free(sl_array *array) {
    if (array->data) sli_free(&array->allocator, array->data, array->bytes);
    memset(array, 0, sizeof *array);
}

bool sli_array_is_sound(const sl_array *array) {
    size_t bytes = sli_array_type_bytes(array->type);
    bool fits = bytes > 0 && array->rank >= 0 && array->rank <= MAX_RANK;
    for (int i = 0; fits && i < array->rank; i++)
        fits = array->shape[i] >= 0 && sli_multiply(bytes, (size_t)array->shape[i], &bytes);
    return fits && bytes == array->bytes && (bytes == 0 || array->data);
}

/* ----------------------------------------------------------------------------------------------------- writing -- */
/* The same bytes as np.save: version 1.0, header padded with blanks to a multiple of 64. */
sl_status sli_npy_write(const char *path, const sl_array *array) {
    SLI_FAIL_IF(!sli_array_is_sound(array), SL_ERR_USAGE,
                "%s: the array to write has a type, rank, shape and number of bytes that do not fit", path);
    char text[512];
    int n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                     TYPES[type_index(array->type)].descr);
    for (int i = 0; i < array->rank; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld", i ? ", " : "", (long long)array->shape[i]);
    n += snprintf(text + n, sizeof text - (size_t)n, "%s), }", array->rank == 1 ? "," : "");
    while ((10 + n + 1) % 64) text[n++] = ' ';
    text[n++] = '\n';
    uint8_t head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)n, (uint8_t)(n >> 8)};
    sli_atomic_file file;
    SLI_TRY(sli_atomic_begin(&file, path));
    SLI_TRY(sli_atomic_append(&file, head, sizeof head));
    SLI_TRY(sli_atomic_append(&file, text, (size_t)n));
    SLI_TRY(sli_atomic_append(&file, array->data, array->bytes));
    return sli_atomic_commit(&file);
}
