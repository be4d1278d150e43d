/* C files with weights of 8 bits: the part of emit_c.c, which includes this once, that differs. Rows of weights are whole numbers
 * and a scale as in backend/cpu/isa/panel_i8.c; what they multiply is rounded in every step; sums are exact. A row lies in one
 * piece, padded with zeros, and rows follow each other as a block's sums do, so that the plain loop is one in which compilers
 * find their instructions, and a processor without vectors has its sum in a register. */

enum { I8_PAD = 16 };

/* ------------------------------------------------------------------------------------------------------------ numbers -- */
/* Whole numbers of some rows, which go to the text at once, and the rows' scales, which follow as another array. */
typedef struct i8_array {
    const emitter *e;
    sli_text scales;
    int numbers, rows;
} i8_array;

static i8_array begin_i8(const emitter *e, int layer, const char *what) {
    i8_array a = {.e = e};
    sli_text_init(&a.scales, &e->text->allocator);
    put(e, "static const signed char @_%d_%s[] @_ALIGNED = {", layer, what);
    return a;
}
static void put_i8(i8_array *a, int number) {
    sli_text_printf(a->e->text, "%s%s%d", a->numbers ? "," : "", a->numbers % 32 ? "" : "\n    ", number);
    a->numbers++;
}
static void put_i8_scale(i8_array *a, float scale) {
    sli_text_printf(&a->scales, "%s%s%sf", a->rows ? "," : "", a->rows % 8 ? " " : "\n    ", sli_hex_of(scale).text);
    a->rows++;
}
static void end_i8(i8_array *a, int layer, const char *what) {
    sli_text_append(a->e->text, "};\n", 3);
    put(a->e, "static const float @_%d_%s_scales[] @_ALIGNED = {", layer, what);
    if (a->scales.length) sli_text_append(a->e->text, a->scales.data, a->scales.length);
    sli_text_append(a->e->text, "};\n", 3);
    a->e->text->failed = a->e->text->failed || a->scales.failed;
    sli_text_free(&a->scales);
}

/* Scale of a row, max |x| / 127, and *inverse, with which a number is made whole. */
static float i8_scale(const float *row, int columns, float *inverse) {
    float most = 0;
    for (int k = 0; k < columns; k++) most = fmaxf(most, fabsf(row[k]));
    *inverse = most < 0x1p-100f ? 0 : 127 / most;
    return most < 0x1p-100f ? 0 : most / 127;
}

/* A padded row; NULL: zeros. */
static void put_i8_row(i8_array *a, const float *row, int columns) {
    float inverse = 0, scale = row ? i8_scale(row, columns, &inverse) : 0;
    for (int k = 0; k < round_up(columns, I8_PAD); k++)
        put_i8(a, row && k < columns ? (int)nearbyintf(row[k] * inverse) : 0);
    put_i8_scale(a, scale);
}

/* Gates order[gates] of units first.. of matrix [G * units][columns]. */
static void put_i8_block(i8_array *a, const float *matrix, int units, int columns, int first, int block,
                         const int *order, int gates) {
    for (int g = 0; g < gates; g++)
        for (int u = first; u < first + block; u++) {
            const size_t row = (size_t)order[g] * (size_t)units + (size_t)u;
            put_i8_row(a, u < units ? matrix + row * (size_t)columns : NULL, columns);
        }
}

/* Rows of the kernel in the order of a block's sums: row `at` of [block][gate][unit], NULL where there is no such unit. */
static const float *i8_kernel_row(const sli_stream_layer *l, int at) {
    const cut c = cut_of(l);
    const int block = block_of(l), in_block = at % (block * c.x_gates),
              unit = at / (block * c.x_gates) * block + at % block;
    const size_t row = (size_t)c.x_order[in_block / block] * (size_t)l->units + (size_t)unit;
    return unit < l->units ? l->array[SLI_STREAM_KERNEL] + row * (size_t)l->inputs : NULL;
}

/* The columns of the kernel that one-hot inputs choose, [token][row]. */
static void put_i8_tokens(const emitter *e, int index, const sli_stream_layer *l) {
    const int rows = round_up(l->units, block_of(l)) * cut_of(l).x_gates;
    float *inverse = sli_alloc(&e->text->allocator, (size_t)rows * sizeof *inverse);
    i8_array a = begin_i8(e, index, "tokens");
    for (int at = 0; inverse && at < rows; at++) {
        const float *row = i8_kernel_row(l, at);
        inverse[at] = 0;
        put_i8_scale(&a, row ? i8_scale(row, l->inputs, &inverse[at]) : 0);
    }
    for (int token = 0; inverse && token < l->inputs; token++)
        for (int at = 0; at < rows; at++) {
            const float *row = i8_kernel_row(l, at);
            put_i8(&a, row ? (int)nearbyintf(row[token] * inverse[at]) : 0);
        }
    end_i8(&a, index, "tokens");
    if (!inverse) e->text->failed = true;
    if (inverse) sli_free(&e->text->allocator, inverse, (size_t)rows * sizeof *inverse);
}

/* [block][slot][unit] */
static void put_i8_bias(const emitter *e, int index, const sli_stream_layer *l) {
    const cut c = cut_of(l);
    const int block = block_of(l), units = round_up(l->units, block);
    array a = begin_array(e, index, "bias", (size_t)units * (size_t)c.slots);
    for (int first = 0; first < units; first += block)
        for (int slot = 0; slot < c.slots; slot++)
            for (int u = first; u < first + block; u++) put_number(&a, bias_of(l, &c, slot, u));
    end_array(&a);
}

static void put_i8_layer_numbers(const emitter *e, int index, const sli_stream_layer *l, bool one_hot) {
    const cut c = cut_of(l);
    const int block = block_of(l), units = round_up(l->units, block);
    if (one_hot) put_i8_tokens(e, index, l);
    if (!one_hot || c.h_gates) {
        i8_array a = begin_i8(e, index, "weights");
        for (int first = 0; first < units; first += block) {
            if (!one_hot)
                put_i8_block(&a, l->array[SLI_STREAM_KERNEL], l->units, l->inputs, first, block, c.x_order, c.x_gates);
            if (c.h_gates)
                put_i8_block(&a, l->array[SLI_STREAM_RECURRENT], l->units, l->outputs, first, block, c.h_order,
                             c.h_gates);
        }
        end_i8(&a, index, "weights");
    }
    put_i8_bias(e, index, l);
}

static void put_i8_rows(const emitter *e, int index, const char *what, const float *matrix, int rows, int columns,
                        int padded_rows) {
    i8_array a = begin_i8(e, index, what);
    for (int i = 0; i < padded_rows; i++)
        put_i8_row(&a, i < rows ? matrix + (size_t)i * (size_t)columns : NULL, columns);
    end_i8(&a, index, what);
}

/* ---------------------------------------------------------------------------------------------------------- functions -- */
static const char i8_text[] =
    "/* q[count] = the nearest whole numbers of v / scale, -127 to 127, then zeros; returns the scale, no number where "
    "v "
    "has such. */\n"
    "static inline float @_whole(const float *v, int count, short *q) {\n"
    "    union { float f; int i; } most;\n"
    "    float inverse;\n"
    "    int k = 0;\n"
    "    most.i = 0;\n"
    "    for (; k < count; k++) {\n"
    "        union { float f; int i; } size;\n"
    "        size.f = v[k];\n"
    "        size.i &= 0x7fffffff;\n"
    "        most.i = size.i > most.i ? size.i : most.i;\n"
    "    }\n"
    "    inverse = most.i < 0x0d800000 || most.i >= 0x7f800000 ? 0.0f : 127.0f / most.f;\n"
    "    for (k = 0; k < count; k++) {\n"
    "        union { float f; int i; } x;\n"
    "        x.f = v[k] * inverse;\n"
    "        x.f = x.f + 12582912.0f; /* the nearest whole number is in the low bits */\n"
    "        q[k] = (short)((x.i & 255) - ((x.i & 128) << 1));\n"
    "    }\n"
    "    for (; k < (count + 15) / 16 * 16; k++) q[k] = 0;\n"
    "    return most.i >= 0x7f800000 ? most.f - most.f : inverse > 0.0f ? most.f / 127.0f : 0.0f;\n"
    "}\n";

static const char i8_dots_text[] =
    "/* z[rows] += w[rows][count] v, w and v whole numbers with scales; rows by eight. */\n"
    "#if @_LANES >= 8 && defined(__AVX2__)\n"
    "#include <immintrin.h>\n"
    "@_INLINE const signed char *@_dots(float *z, int rows, const signed char *w, const float *scales, const short "
    "*v,\n"
    "                                   float scale, int count) {\n"
    "    for (int r = 0; r < rows; r += 8, w += 8 * count) {\n"
    "        __m256i s[8], low, high;\n"
    "        @_UNROLL\n"
    "        for (int i = 0; i < 8; i++) s[i] = _mm256_setzero_si256();\n"
    "        for (int k = 0; k < count; k += 16) {\n"
    "            const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(v + k));\n"
    "            @_UNROLL\n"
    "            for (int i = 0; i < 8; i++) {\n"
    "                const __m128i row = _mm_loadu_si128((const __m128i *)(const void *)(w + i * count + k));\n"
    "                s[i] = _mm256_add_epi32(s[i], _mm256_madd_epi16(_mm256_cvtepi8_epi16(row), x));\n"
    "            }\n"
    "        }\n"
    "        low = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));\n"
    "        high = _mm256_hadd_epi32(_mm256_hadd_epi32(s[4], s[5]), _mm256_hadd_epi32(s[6], s[7]));\n"
    "        low = _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),\n"
    "                               _mm256_permute2x128_si256(low, high, 0x31));\n"
    "        _mm256_storeu_ps(z + r, _mm256_loadu_ps(z + r) + _mm256_cvtepi32_ps(low) *\n"
    "                                (_mm256_loadu_ps(scales + r) * _mm256_set1_ps(scale)));\n"
    "    }\n"
    "    return w;\n"
    "}\n"
    "#elif @_LANES == 4 && defined(__SSE2__)\n"
    "#include <emmintrin.h>\n"
    "@_INLINE const signed char *@_dots(float *z, int rows, const signed char *w, const float *scales, const short "
    "*v,\n"
    "                                   float scale, int count) {\n"
    "    for (int r = 0; r < rows; r += 4, w += 4 * count) {\n"
    "        __m128i s[4], a, b;\n"
    "        @_UNROLL\n"
    "        for (int i = 0; i < 4; i++) s[i] = _mm_setzero_si128();\n"
    "        for (int k = 0; k < count; k += 16) {\n"
    "            const __m128i x0 = _mm_loadu_si128((const __m128i *)(const void *)(v + k));\n"
    "            const __m128i x1 = _mm_loadu_si128((const __m128i *)(const void *)(v + k + 8));\n"
    "            @_UNROLL\n"
    "            for (int i = 0; i < 4; i++) {\n"
    "                const __m128i row = _mm_loadu_si128((const __m128i *)(const void *)(w + i * count + k));\n"
    "                a = _mm_madd_epi16(_mm_srai_epi16(_mm_unpacklo_epi8(row, row), 8), x0);\n"
    "                b = _mm_madd_epi16(_mm_srai_epi16(_mm_unpackhi_epi8(row, row), 8), x1);\n"
    "                s[i] = _mm_add_epi32(s[i], _mm_add_epi32(a, b));\n"
    "            }\n"
    "        }\n"
    "        a = _mm_add_epi32(_mm_unpacklo_epi32(s[0], s[1]), _mm_unpackhi_epi32(s[0], s[1]));\n"
    "        b = _mm_add_epi32(_mm_unpacklo_epi32(s[2], s[3]), _mm_unpackhi_epi32(s[2], s[3]));\n"
    "        a = _mm_add_epi32(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b));\n"
    "        _mm_storeu_ps(z + r, _mm_loadu_ps(z + r) + _mm_cvtepi32_ps(a) *\n"
    "                             (_mm_loadu_ps(scales + r) * _mm_set1_ps(scale)));\n"
    "    }\n"
    "    return w;\n"
    "}\n"
    "#else\n"
    "@_INLINE const signed char *@_dots(float *z, int rows, const signed char *w, const float *scales, const short "
    "*v,\n"
    "                                   float scale, int count) {\n"
    "    for (int r = 0; r < rows; r++, w += count) {\n"
    "        int sum = 0;\n"
    "        for (int k = 0; k < count; k++) sum += (short)w[k] * v[k];\n"
    "        z[r] += (float)sum * (scales[r] * scale);\n"
    "    }\n"
    "    return w;\n"
    "}\n"
    "#endif\n";

/* y[rows] = matrix v */
static void put_i8_plain(const emitter *e, int index, const char *what, int rows, int columns, const char *v,
                         const char *y) {
    const int all = round_up(rows, plain_block(rows)), padded_columns = round_up(columns, I8_PAD);
    put(e, "    {\n        short q8[%d] @_ALIGNED;\n        const float scale = @_whole(%s, %d, q8);\n", padded_columns,
        v, columns);
    put(e, "        for (int k = 0; k < %d; k++) %s[k] = 0.0f;\n", all, y);
    put(e, "        @_dots(%s, %d, @_%d_%s, @_%d_%s_scales, q8, scale, %d);\n    }\n", y, all, index, what, index, what,
        padded_columns);
}

/* The products of a block into z[slot][unit of the block]. */
static void put_i8_block_products(const emitter *e, int index, const sli_stream_layer *l, bool one_hot) {
    const cut c = cut_of(l);
    const int block = block_of(l);
    put(e, "        enum { UNITS = %d / @_LANES, ALL = %d * UNITS };\n", block, c.slots);
    put(e, "        float sums[%d] @_ALIGNED;\n        @_vector z[ALL];\n", block * c.slots);
    put(e, "        for (int i = 0; i < %d; i++) sums[i] = @_%d_bias[b * %d + i];\n", block * c.slots, index, c.slots);
    if (one_hot) {
        put(e, "        for (int i = 0; i < %d; i++)\n", block * c.x_gates);
        put(e, "            sums[i] += (float)@_%d_tokens[(long)token * %d + b * %d + i] * ", index,
            round_up(l->units, block) * c.x_gates, c.x_gates);
        put(e, "@_%d_tokens_scales[b * %d + i];\n", index, c.x_gates);
    } else {
        put(e, "        w = @_dots(sums, %d, w, scales, xq, x_scale, %d);\n        scales += %d;\n", block * c.x_gates,
            round_up(l->inputs, I8_PAD), block * c.x_gates);
    }
    if (c.h_gates)
        put(e, "        w = @_dots(sums + %d, %d, w, scales, hq, h_scale, %d);\n        scales += %d;\n",
            block * c.h_first, block * c.h_gates, round_up(l->outputs, I8_PAD), block * c.h_gates);
    put(e, "        @_UNROLL\n        for (int i = 0; i < ALL; i++) z[i] = @_load(sums + i * @_LANES);\n");
}

/* Weights, and what they multiply, made whole. `table`: the inputs are row `token` of the embedding, layer 0, which is so already. */
static void put_i8_locals(const emitter *e, int index, const sli_stream_layer *l, bool one_hot, bool table) {
    const cut c = cut_of(l);
    const int x_count = round_up(l->inputs, I8_PAD), h_count = round_up(l->outputs, I8_PAD);
    if (!one_hot || c.h_gates)
        put(e, "    const signed char *w = @_%d_weights;\n    const float *scales = @_%d_weights_scales;\n", index,
            index);
    if (!one_hot) put(e, "    short xq[%d] @_ALIGNED;\n", x_count);
    if (c.h_gates) put(e, "    short hq[%d] @_ALIGNED;\n", h_count);
    if (table)
        put(e, "    const float x_scale = @_0_table_scales[token];\n");
    else if (!one_hot)
        put(e, "    const float x_scale = @_whole(x, %d, xq);\n", l->inputs);
    if (c.h_gates) put(e, "    const float h_scale = @_whole(h, %d, hq);\n", l->outputs);
    if (table) put(e, "    for (int k = 0; k < %d; k++) xq[k] = @_0_table[(long)token * %d + k];\n", x_count, x_count);
}
