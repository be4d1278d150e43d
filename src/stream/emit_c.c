/* A stream model as one C99 file: constants, a few vector functions, one function a layer. In the texts below @ is the name that all
 * names begin with. Where the compiler has GNU's vectors (gcc, clang) a vector is as wide as the flags allow; elsewhere it is
 * one float, and the same text holds. Weights are packed as in kernels.h: [block][k][gate][unit of the block], so that a block's
 * sums stay in registers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cell/activations.h"
#include "stream/convert.h"

typedef struct emitter {
    sli_text *text;
    const char *name;
    const sli_stream_layers *layers;
    bool i8; /* weights of 8 bits */
} emitter;

/* Text as it is, but for @. */
static void put_text(const emitter *e, const char *from) {
    for (const char *at; (at = strchr(from, '@')) != NULL; from = at + 1) {
        sli_text_append(e->text, from, (size_t)(at - from));
        sli_text_append(e->text, e->name, strlen(e->name));
    }
    sli_text_append(e->text, from, strlen(from));
}

static void put(const emitter *e, const char *format, ...) SLI_PRINTF(2, 3);
static void put(const emitter *e, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= (int)sizeof text)
        e->text->failed = true;
    else
        put_text(e, text);
}

/* ---------------------------------------------------------------------------------------------------------- sizes -- */
static bool is_usual(const sli_stream_layer *l) {
    return (l->kind == SLI_STREAM_LSTM || l->kind == SLI_STREAM_GRU) && l->options == 0 && l->act == CELL_ACT_TANH &&
           l->gate_act == CELL_ACT_SIGMOID;
}
static bool resets_before(const sli_stream_layer *l) {
    return l->kind == SLI_STREAM_GRU && l->options & CELL_RESET_BEFORE;
}

/* Units of a block. */
static int block_of(const sli_stream_layer *l) {
    if (l->kind == SLI_STREAM_LSTM || l->kind == SLI_STREAM_GRU) return l->units > 8 ? 16 : 8;
    return l->units > 32 ? 64 : l->units > 16 ? 32 : 16;
}
/* The same of a plain matrix of `rows` rows: a projection, or R_n. */
static int plain_block(int rows) {
    return rows > 32 ? 64 : rows > 16 ? 32 : 16;
}
static int round_up(int count, int multiple) {
    return (count + multiple - 1) / multiple * multiple;
}
/* h's length in memory. */
static int padded(const sli_stream_layer *l) {
    if (l->options & CELL_PROJECTION) return round_up(l->outputs, plain_block(l->outputs));
    return round_up(l->units, block_of(l));
}
/* h changes block by block, while later blocks read it. */
static bool needs_old(const sli_stream_layer *l) {
    return (is_usual(l) || (l->kind == SLI_STREAM_GRU && !resets_before(l))) && l->units > block_of(l);
}
/* Blocks are gone through forward and back by turns, as in kernels.h: what a step read last is near for the next one. */
static bool turns(const emitter *e, const sli_stream_layer *l) {
    const bool cell = l->kind == SLI_STREAM_LSTM || l->kind == SLI_STREAM_GRU;
    return !e->i8 && cell && l->units > 2 * block_of(l);
}
static bool any_turns(const emitter *e) {
    for (int i = 0; i < e->layers->count; i++)
        if (turns(e, &e->layers->layer[i])) return true;
    return false;
}
static bool is_few(const emitter *e, const sli_stream_layer *l) {
    return !e->i8 && l->kind == SLI_STREAM_DENSE && l->units <= 4;
}

/* i8: the layer after an embedding reads its row of whole numbers. */
static bool takes_table(const emitter *e, int index) {
    return e->i8 && index == 1 && index < e->layers->count && e->layers->layer[0].kind == SLI_STREAM_EMBEDDING;
}

/* -------------------------------------------------------------------------------------------------------- numbers --
 * Each form of weights has its own function here, and its own @_multiply below: this one is floats, as they are. */
typedef struct array {
    const emitter *e;
    int count;
} array;

static array begin_array(const emitter *e, int layer, const char *what, size_t count) {
    put(e, "static const float @_%d_%s[%zu] @_ALIGNED = {", layer, what, count);
    return (array){e, 0};
}
static void put_number(array *a, float value) {
    sli_text_printf(a->e->text, "%s%s%sf", a->count ? "," : "", a->count % 8 ? " " : "\n    ", sli_hex_of(value).text);
    a->count++;
}
static void end_array(array *a) {
    sli_text_append(a->e->text, "};\n", 3);
}

/* Gates [gate, gate + gates) of units first.. of matrix [G * units][columns], one block; `order` gives the gates' order. */
static void put_block(array *a, const float *matrix, int units, int columns, int first, int block, const int *order,
                      int gates) {
    for (int k = 0; k < columns; k++)
        for (int g = 0; g < gates; g++)
            for (int u = first; u < first + block; u++) {
                const size_t row = (size_t)order[g] * (size_t)units + (size_t)u;
                put_number(a, u < units ? matrix[row * (size_t)columns + (size_t)k] : 0.0f);
            }
}

static const int lstm_order[] = {0, 1, 3, 2};              /* i f o g */
static const int gru_x[] = {2, 0, 1}, gru_h[] = {0, 1, 2}; /* n r z, r z s: slots 0..2 and 1..3 of n r z s */

typedef struct cut {
    int slots, x_gates, h_first, h_gates; /* numbers of a unit; x's part begins with slot 0 */
    const int *x_order, *h_order;
} cut;

static cut cut_of(const sli_stream_layer *l) {
    switch (l->kind) {
    case SLI_STREAM_LSTM:
        return (cut){4, 4, 0, 4, lstm_order, lstm_order};
    case SLI_STREAM_GRU:
        return (cut){4, 3, 1, resets_before(l) ? 2 : 3, gru_x, gru_h};
    default:
        return (cut){1, 1, 0, l->kind == SLI_STREAM_RNN, gru_h, gru_h};
    }
}

static float bias_of(const sli_stream_layer *l, const cut *c, int slot, int unit) {
    const float *state_bias = l->array[SLI_STREAM_STATE_BIAS];
    if (unit >= l->units) return 0.0f;
    if (slot >= c->x_gates) return state_bias ? state_bias[unit] : 0.0f;
    return l->array[SLI_STREAM_BIAS][(size_t)c->x_order[slot] * (size_t)l->units + (size_t)unit];
}

static void put_layer_numbers(const emitter *e, int index, const sli_stream_layer *l, bool one_hot) {
    const cut c = cut_of(l);
    const int block = block_of(l), units = round_up(l->units, block), x_columns = one_hot ? 0 : l->inputs;
    const size_t count =
        (size_t)units * ((size_t)c.x_gates * (size_t)x_columns + (size_t)c.h_gates * (size_t)l->outputs);
    array a;
    if (count) {
        a = begin_array(e, index, "weights", count);
        for (int first = 0; first < units; first += block) {
            if (!one_hot)
                put_block(&a, l->array[SLI_STREAM_KERNEL], l->units, l->inputs, first, block, c.x_order, c.x_gates);
            if (c.h_gates)
                put_block(&a, l->array[SLI_STREAM_RECURRENT], l->units, l->outputs, first, block, c.h_order, c.h_gates);
        }
        end_array(&a);
    }
    /* One-hot inputs choose a column of the kernel: a row here, with the bias. */
    const int rows = one_hot ? l->inputs : 1;
    a = begin_array(e, index, one_hot ? "tokens" : "bias", (size_t)rows * (size_t)units * (size_t)c.slots);
    for (int row = 0; row < rows; row++)
        for (int first = 0; first < units; first += block)
            for (int slot = 0; slot < c.slots; slot++)
                for (int u = first; u < first + block; u++) {
                    float value = bias_of(l, &c, slot, u);
                    if (one_hot && slot < c.x_gates && u < l->units) {
                        const size_t at = (size_t)c.x_order[slot] * (size_t)l->units + (size_t)u;
                        value += l->array[SLI_STREAM_KERNEL][at * (size_t)l->inputs + (size_t)row];
                    }
                    put_number(&a, value);
                }
    end_array(&a);
}

#include "stream/emit_i8_body.h"

static void put_plain_numbers(const emitter *e, int index, const char *what, const float *matrix, int gate, int rows,
                              int columns) {
    const int block = plain_block(rows), all = round_up(rows, block);
    if (e->i8) {
        put_i8_rows(e, index, what, matrix + (size_t)gate * (size_t)rows * (size_t)columns, rows, columns, all);
        return;
    }
    array a = begin_array(e, index, what, (size_t)all * (size_t)columns);
    for (int first = 0; first < all; first += block) put_block(&a, matrix, rows, columns, first, block, &gate, 1);
    end_array(&a);
}

static void put_rows(const emitter *e, int index, const char *what, const float *from, int rows, int columns, int row) {
    array a = begin_array(e, index, what, (size_t)rows * (size_t)row);
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < row; k++)
            put_number(&a, k < columns ? from[(size_t)i * (size_t)columns + (size_t)k] : 0.0f);
    end_array(&a);
}

static void put_numbers(const emitter *e, int index, const sli_stream_layer *l, bool one_hot) {
    if (l->kind == SLI_STREAM_EMBEDDING && takes_table(e, index + 1))
        put_i8_rows(e, index, "table", l->array[SLI_STREAM_KERNEL], l->inputs, l->units, l->inputs);
    else if (l->kind == SLI_STREAM_EMBEDDING)
        put_rows(e, index, "table", l->array[SLI_STREAM_KERNEL], l->inputs, l->units, l->units);
    if (l->kind < SLI_STREAM_DENSE) return;
    if (is_few(e, l) && !one_hot) {
        put_rows(e, index, "weights", l->array[SLI_STREAM_KERNEL], l->units, l->inputs, round_up(l->inputs, 16));
        put_rows(e, index, "bias", l->array[SLI_STREAM_BIAS], 1, l->units, l->units);
        return;
    }
    if (e->i8)
        put_i8_layer_numbers(e, index, l, one_hot);
    else
        put_layer_numbers(e, index, l, one_hot);
    if (resets_before(l)) put_plain_numbers(e, index, "reset", l->array[SLI_STREAM_RECURRENT], 2, l->units, l->outputs);
    if (l->options & CELL_PROJECTION)
        put_plain_numbers(e, index, "projection", l->array[SLI_STREAM_PROJECTION], 0, l->outputs, l->units);
    if (l->options & CELL_PEEPHOLE)
        put_rows(e, index, "peephole", l->array[SLI_STREAM_PEEPHOLE], 3, l->units, round_up(l->units, block_of(l)));
}

/* ---------------------------------------------------------------------------------------------- vectors, functions -- */
static const char vectors_text[] =
    "#if (defined(__i386__) || defined(__x86_64__)) && !defined(__SSE2_MATH__) && !defined(@_PLAIN_C)\n"
    "#define @_PLAIN_C /* x87: constants are wider than floats */\n"
    "#endif\n"
    "#if defined(__GNUC__) && !defined(@_PLAIN_C)\n"
    "#if defined(__AVX512F__) && @_MOST >= 16\n"
    "#define @_LANES 16\n"
    "#elif defined(__AVX__)\n"
    "#define @_LANES 8\n"
    "#else\n"
    "#define @_LANES 4\n"
    "#endif\n"
    "typedef float @_vector __attribute__((vector_size(4 * @_LANES)));\n"
    "typedef float @_memory __attribute__((vector_size(4 * @_LANES), aligned(4), may_alias));\n"
    "typedef unsigned @_bits __attribute__((vector_size(4 * @_LANES)));\n"
    "#define @_INLINE static inline __attribute__((always_inline, unused))\n"
    "#define @_ALIGNED __attribute__((aligned(64)))\n"
    "#define @_UNROLL _Pragma(\"GCC unroll 16\")\n"
    "#else /* one float after the other */\n"
    "#define @_LANES 1\n"
    "typedef float @_vector;\n"
    "typedef float @_memory;\n"
    "typedef unsigned @_bits;\n"
    "#define @_INLINE static inline\n"
    "#define @_ALIGNED\n"
    "#define @_UNROLL\n"
    "#endif\n"
    "/* Parts that k is cut into, so that a block of `floats` sums keeps eight additions under way. */\n"
    "#define @_PHASES(floats) \\\n"
    "    (@_LANES == 1 || (floats) >= 8 * @_LANES ? 1 : 8 * @_LANES / (floats) > 4 ? 4 : 8 * @_LANES / (floats))\n\n"
    "@_INLINE @_vector @_load(const float *p) { return *(const @_memory *)p; }\n"
    "@_INLINE void @_store(float *p, @_vector v) { *(@_memory *)p = v; }\n";

/* Needed by cells and by some activations. Compilers do not make one instruction of comparing and choosing. */
static const char choice_text[] =
    "/* The smaller and the larger, b where one of them is no number; whole numbers from -128 to 127 as floats. */\n"
    "#define @_FLOAT(i) ((float)((int)((i) + 128u) - 128))\n"
    "#if @_LANES == 16\n"
    "#include <immintrin.h>\n"
    "#define @_MIN(a, b) ((@_vector)_mm512_min_ps(a, b))\n"
    "#define @_MAX(a, b) ((@_vector)_mm512_max_ps(a, b))\n"
    "#define @_FLOATS(i) ((@_vector)_mm512_cvtepi32_ps((__m512i)(i)))\n"
    "#elif @_LANES == 8\n"
    "#include <immintrin.h>\n"
    "#define @_MIN(a, b) ((@_vector)_mm256_min_ps(a, b))\n"
    "#define @_MAX(a, b) ((@_vector)_mm256_max_ps(a, b))\n"
    "#define @_FLOATS(i) ((@_vector)_mm256_cvtepi32_ps((__m256i)(i)))\n"
    "#elif @_LANES == 4 && defined(__SSE2__)\n"
    "#include <emmintrin.h>\n"
    "#define @_MIN(a, b) ((@_vector)_mm_min_ps(a, b))\n"
    "#define @_MAX(a, b) ((@_vector)_mm_max_ps(a, b))\n"
    "#define @_FLOATS(i) ((@_vector)_mm_cvtepi32_ps((__m128i)(i)))\n"
    "#elif @_LANES == 4 && defined(__aarch64__)\n"
    "#include <arm_neon.h>\n"
    "#define @_MIN(a, b) ((@_vector)vminq_f32(a, b))\n"
    "#define @_MAX(a, b) ((@_vector)vmaxq_f32(a, b))\n"
    "#define @_FLOATS(i) ((@_vector)vcvtq_f32_s32((int32x4_t)(i)))\n"
    "#elif @_LANES == 4\n"
    "#define @_MIN(a, b) ((@_vector)(((@_bits)((a) < (b)) & (@_bits)(a)) | (~(@_bits)((a) < (b)) & (@_bits)(b))))\n"
    "#define @_MAX(a, b) ((@_vector)(((@_bits)((a) > (b)) & (@_bits)(a)) | (~(@_bits)((a) > (b)) & (@_bits)(b))))\n"
    "@_INLINE @_vector @_floats(@_bits i) {\n"
    "    @_vector f = {0};\n"
    "    for (int k = 0; k < 4; k++) f[k] = @_FLOAT(i[k]);\n"
    "    return f;\n"
    "}\n"
    "#define @_FLOATS(i) @_floats(i)\n"
    "#else\n"
    "#define @_MIN(a, b) ((a) < (b) ? (a) : (b))\n"
    "#define @_MAX(a, b) ((a) > (b) ? (a) : (b))\n"
    "#define @_FLOATS(i) @_FLOAT(i)\n"
    "#endif\n";
static const char clamp_text[] = "@_INLINE @_vector @_clamp(@_vector x, float low, float high) {\n"
                                 "    const @_vector zero = {0}, least = zero + low, most = zero + high;\n"
                                 "    x = @_MAX(least, x);\n"
                                 "    return @_MIN(most, x);\n"
                                 "}\n";

/* As isa/cells.h has it: with AVX-512 by two instructions that need no clamp. With -ffast-math compilers divide by a reciprocal and a step of
 * Newton's, which is no number where the divisor is infinite or its reciprocal denormal: there e^-x is at most e^80, and that times the
 * tanh's q, 338 at most, is well within floats. */
static const char sigmoid_text[] =
    "#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0 /* divisors must be finite */\n"
    "#elif defined(__AVX512DQ__) && @_LANES == 16\n"
    "#define @_ABOVE_FLOOR(t) ((@_vector)_mm512_reduce_ps(t, 9))\n"
    "#define @_TIMES_POWER(p, t) ((@_vector)_mm512_scalef_ps(p, t))\n"
    "#elif defined(__AVX512DQ__) && defined(__AVX512VL__) && @_LANES == 8\n"
    "#define @_ABOVE_FLOOR(t) ((@_vector)_mm256_reduce_ps(t, 9))\n"
    "#define @_TIMES_POWER(p, t) ((@_vector)_mm256_scalef_ps(p, t))\n"
    "#endif\n"
    "/* sigmoid x = 1 / D, D = 1 + e^-x; e^-x = 2^(n + r). */\n"
    "#ifdef @_ABOVE_FLOOR /* n the whole part, 2^r by a minimax polynomial */\n"
    "@_INLINE @_vector @_sigmoid_divisor(@_vector x) {\n"
    "    const @_vector t = x * -1.44269504f, r = @_ABOVE_FLOOR(t), r2 = r * r;\n"
    "    const @_vector low = (0.0554833420f * r + 0.240229836f) * r2 + (0.693146984f * r + 1.0f);\n"
    "    const @_vector high = 0.000217022557f * r2 + (0.00124396877f * r + 0.00967884101f);\n"
    "    return @_TIMES_POWER(high * (r2 * r2) + low, t) + 1.0f;\n"
    "}\n"
    "#else /* n by adding 1.5 * 2^23, 2^r by its Taylor polynomial */\n"
    "@_INLINE @_vector @_sigmoid_divisor(@_vector x) {\n"
    "    union { @_vector f; @_bits i; } power;\n"
    "    @_vector n, r, r2;\n"
    "    x = @_clamp(x, -80.0f, 80.0f);\n"
    "    power.f = x * -1.44269504f + 12582912.0f;\n"
    "    power.i = power.i - 0x4b400000u;\n"
    "    n = @_FLOATS(power.i); /* not power.f - 12582912.0f, of which -ffast-math and x87 make what was added */\n"
    "    power.i = (power.i + 127u) << 23;\n"
    "    r = x * -1.44269504f - n;\n"
    "    r2 = r * r;\n"
    "    r = ((0.0555041087f * r + 0.240226507f) * r2 + (0.693147181f * r + 1.0f)) +\n"
    "        ((1.52527338e-5f * r + 0.000154035304f) * r2 + (0.00133335581f * r + 0.00961812911f)) * (r2 * r2);\n"
    "    return r * power.f + 1.0f;\n"
    "}\n"
    "#endif\n";

static const char tanh_text[] =
    "/* tanh x = p / q, a minimax fraction. */\n"
    "@_INLINE @_vector @_tanh_fraction(@_vector x, @_vector *q) {\n"
    "    const @_vector zero = {0}, most = zero + 9.02f * 9.02f, square = x * x, s = @_MIN(most, square), s2 = s * s;\n"
    "    x = @_clamp(x, -9.02f, 9.02f);\n"
    "    *q = (2.544813718e-04f * s + 2.449156488e-02f) * s2 + (4.641652570e-01f * s + 1.0f);\n"
    "    return x * (((1.114467670e-05f * s + 3.103046294e-03f) * s2 + (1.308319868e-01f * s + 9.999999933e-01f)) +\n"
    "                (-8.437000914e-14f * s2 + (5.258301665e-11f * s + -2.018537928e-08f)) * (s2 * s2));\n"
    "}\n";

static const char multiply_text[] =
    "/* z[phase][all] += w[k][vectors] v[k], number k in phase k % phases. */\n"
    "@_INLINE const float *@_multiply(@_vector *z, int all, int vectors, int phases, const float *w, const float *v, "
    "int "
    "count) {\n"
    "    int k = 0;\n"
    "    for (; k + phases <= count; k += phases)\n"
    "        @_UNROLL\n"
    "        for (int p = 0; p < phases; p++)\n"
    "            @_UNROLL\n"
    "            for (int i = 0; i < vectors; i++, w += @_LANES) z[p * all + i] += @_load(w) * v[k + p];\n"
    "    for (; phases > 1 && k < count; k++)\n"
    "        @_UNROLL\n"
    "        for (int i = 0; i < vectors; i++, w += @_LANES) z[i] += @_load(w) * v[k];\n"
    "    return w;\n"
    "}\n"
    "/* z[all] = bias, other phases 0; and their sum. */\n"
    "@_INLINE void @_begin(@_vector *z, int all, int phases, const float *bias) {\n"
    "    const @_vector zero = {0};\n"
    "    @_UNROLL\n"
    "    for (int i = 0; i < all; i++) z[i] = @_load(bias + i * @_LANES);\n"
    "    @_UNROLL\n"
    "    for (int i = all; i < phases * all; i++) z[i] = zero;\n"
    "}\n"
    "@_INLINE void @_end(@_vector *z, int all, int phases) {\n"
    "    @_UNROLL\n"
    "    for (int i = all; i < phases * all; i++) z[i % all] += z[i];\n"
    "}\n";

static const char lstm_text[] =
    "/* z = i f o g of some units: c = f c + i g, h = o tanh(c). */\n"
    "@_INLINE void @_lstm(const @_vector *z, int apart, float *h, float *c) {\n"
    "    @_vector q, p = @_tanh_fraction(z[3 * apart], &q), new_c;\n"
    "    new_c = @_load(c) / @_sigmoid_divisor(z[apart]) + p / (q * @_sigmoid_divisor(z[0]));\n"
    "    @_store(c, new_c);\n"
    "    p = @_tanh_fraction(new_c, &q);\n"
    "    @_store(h, p / (q * @_sigmoid_divisor(z[2 * apart])));\n"
    "}\n";

static const char gru_text[] =
    "/* z = n r z s of some units: n = tanh(n + r s), h = (1 - z) n + z h. */\n"
    "@_INLINE void @_gru(const @_vector *z, int apart, float *h) {\n"
    "    const @_vector update = 1.0f / @_sigmoid_divisor(z[2 * apart]);\n"
    "    @_vector q, p = @_tanh_fraction(z[0] + z[3 * apart] / @_sigmoid_divisor(z[apart]), &q);\n"
    "    @_store(h, (1.0f - update) * p / q + update * @_load(h));\n"
    "}\n";

/* act(x) as an expression of vectors; CELL_ACT_*. */
static const char *const act_functions[] = {
    NULL,
    NULL,
    "@_INLINE @_vector @_tanh(@_vector x) {\n"
    "    @_vector q, p = @_tanh_fraction(x, &q);\n"
    "    return @_clamp(p / q, -1.0f, 1.0f);\n"
    "}\n",
    "@_INLINE @_vector @_sigmoid(@_vector x) { return 1.0f / @_sigmoid_divisor(x); }\n",
    "@_INLINE @_vector @_relu(@_vector x) {\n"
    "    const @_vector zero = {0};\n"
    "    return @_MAX(zero, x);\n"
    "}\n",
    "@_INLINE @_vector @_hard_sigmoid(@_vector x) { return @_clamp(x * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f); }\n",
    "@_INLINE @_vector @_hard_sigmoid_k2(@_vector x) { return @_clamp(x * 0.2f + 0.5f, 0.0f, 1.0f); }\n",
    "@_INLINE @_vector @_softsign(@_vector x) { return x / (1.0f + @_MAX(x, -x)); }\n"};
static const char *const act_calls[] = {
    "", "", "@_tanh", "@_sigmoid", "@_relu", "@_hard_sigmoid", "@_hard_sigmoid_k2", "@_softsign"};

/* Which functions the layers need. */
typedef struct needs {
    bool lstm, gru, multiply, clip, whole /* i8: operands are made whole */, act[CELL_ACT_SOFTSIGN + 1];
} needs;

static needs needs_of(const emitter *e) {
    const sli_stream_layers *layers = e->layers;
    needs n = {0};
    const bool one_hot = layers->layer[0].kind == SLI_STREAM_ONE_HOT;
    for (int i = 0; i < layers->count; i++) {
        const sli_stream_layer *l = &layers->layer[i];
        const bool first = one_hot && i == 1;
        if (l->kind < SLI_STREAM_DENSE) continue;
        const bool state = cut_of(l).h_gates > 0;
        n.multiply = n.multiply || (e->i8 ? state || !first : first || !is_few(e, l));
        n.whole = n.whole || state || !(first || takes_table(e, i));
        if (is_usual(l)) {
            n.lstm = n.lstm || l->kind == SLI_STREAM_LSTM;
            n.gru = n.gru || l->kind == SLI_STREAM_GRU;
        } else {
            n.act[l->act] = true;
            n.clip = n.clip || l->options & CELL_CLIP;
            if (l->gate_act) n.act[l->gate_act] = true;
        }
    }
    return n;
}

static void put_functions(const emitter *e) {
    const needs n = needs_of(e);
    int most = 16;
    for (int i = 0; i < e->layers->count; i++) {
        const sli_stream_layer *l = &e->layers->layer[i];
        if (l->kind >= SLI_STREAM_DENSE && block_of(l) < most) most = block_of(l);
    }
    put(e, "#define @_MOST %d /* lanes */\n", most);
    put_text(e, vectors_text);
    const bool tanh = n.lstm || n.gru || n.act[CELL_ACT_TANH], sigmoid = n.lstm || n.gru || n.act[CELL_ACT_SIGMOID];
    const bool clamp = tanh || sigmoid || n.clip || n.act[CELL_ACT_HARD_SIGMOID] || n.act[CELL_ACT_HARD_SIGMOID_K2];
    if (clamp || n.act[CELL_ACT_RELU] || n.act[CELL_ACT_SOFTSIGN]) put_text(e, choice_text);
    if (clamp) put_text(e, clamp_text);
    if (sigmoid) put_text(e, sigmoid_text);
    if (tanh) put_text(e, tanh_text);
    if (e->i8 && n.whole) put_text(e, i8_text);
    if (n.multiply) put_text(e, e->i8 ? i8_dots_text : multiply_text);
    if (n.lstm) put_text(e, lstm_text);
    if (n.gru) put_text(e, gru_text);
    for (int act = CELL_ACT_TANH; act <= CELL_ACT_SOFTSIGN; act++)
        if (n.act[act]) put_text(e, act_functions[act]);
}

/* --------------------------------------------------------------------------------------------------------- layers -- */
/* "@_tanh(x)" */
static void put_act(const emitter *e, int act, const char *x) {
    put_text(e, act_calls[act]);
    put(e, "(%s)", x);
}

/* y[rows] = matrix v, a loop over blocks. */
static void put_plain(const emitter *e, int index, const char *what, int rows, int columns, const char *v,
                      const char *y) {
    const int block = plain_block(rows), all = round_up(rows, block);
    if (e->i8) {
        put_i8_plain(e, index, what, rows, columns, v, y);
        return;
    }
    put(e, "    w = @_%d_%s;\n    for (int b = 0; b < %d; b += %d) {\n", index, what, all, block);
    put(e, "        enum { ALL = %d / @_LANES, PHASES = @_PHASES(%d) };\n        @_vector z[PHASES * ALL];\n", block,
        block);
    put(e, "        @_begin(z, ALL, PHASES, nothing);\n        w = @_multiply(z, ALL, ALL, PHASES, w, %s, %d);\n", v,
        columns);
    put(e, "        @_end(z, ALL, PHASES);\n        @_UNROLL\n");
    put(e, "        for (int i = 0; i < ALL; i++) @_store(%s + b + i * @_LANES, z[i]);\n    }\n", y);
}

/* The products of a block into z[slot][unit of the block]. */
static void put_block_products(const emitter *e, int index, const sli_stream_layer *l, bool one_hot) {
    const cut c = cut_of(l);
    const int block = block_of(l), sums = block * c.slots;
    if (e->i8) {
        put_i8_block_products(e, index, l, one_hot);
        return;
    }
    put(e, "        enum { UNITS = %d / @_LANES, ALL = %d * UNITS, PHASES = @_PHASES(%d) };\n", block, c.slots, sums);
    put(e, "        @_vector z[PHASES * ALL];\n");
    if (one_hot)
        put(e, "        @_begin(z, ALL, PHASES, @_%d_tokens + (long)token * %d + b * %d);\n", index,
            round_up(l->units, block) * c.slots, c.slots);
    else
        put(e, "        @_begin(z, ALL, PHASES, @_%d_bias + b * %d);\n", index, c.slots);
    if (!one_hot) put(e, "        w = @_multiply(z, ALL, %d * UNITS, PHASES, w, x, %d);\n", c.x_gates, l->inputs);
    if (c.h_gates)
        put(e, "        w = @_multiply(z + %d * UNITS, ALL, %d * UNITS, PHASES, w, %s, %d);\n", c.h_first, c.h_gates,
            needs_old(l) ? "old" : "h", l->outputs);
    put(e, "        @_end(z, ALL, PHASES);\n");
}

/* The cell of vector i of a block, with any activation and option, when not the usual: m[] of an LSTM, a[] of a GRU reset before. */
static void put_any_lstm(const emitter *e, int index, const sli_stream_layer *l) {
    const bool peephole = l->options & CELL_PEEPHOLE;
    put(e,
        "            @_vector old_c = @_load(c + u), v, in = z[i], forget = z[UNITS + i], out = z[2 * UNITS + i];\n");
    if (peephole) {
        const int row = round_up(l->units, block_of(l));
        put(e, "            in += @_load(@_%d_peephole + u) * old_c;\n", index);
        put(e, "            forget += @_load(@_%d_peephole + %d + u) * old_c;\n", index, row);
    }
    put(e, "            v = ");
    put_act(e, l->gate_act, "forget");
    put(e, " * old_c + ");
    put_act(e, l->gate_act, "in");
    put(e, " * ");
    put_act(e, l->act, "z[3 * UNITS + i]");
    put(e, ";\n");
    if (l->options & CELL_CLIP)
        put(e, "            v = @_clamp(v, %sf, %sf);\n", sli_hex_of(-l->clip).text, sli_hex_of(l->clip).text);
    if (peephole)
        put(e, "            out += @_load(@_%d_peephole + %d + u) * v;\n", index, 2 * round_up(l->units, block_of(l)));
    if (l->options & CELL_ZONEOUT_C)
        put(e, "            @_store(c + u, %sf * old_c + %sf * v);\n", sli_hex_of(l->zone_c).text,
            sli_hex_of(1.0f - l->zone_c).text);
    else
        put(e, "            @_store(c + u, v);\n");
    put(e, "            @_store(m + u, ");
    put_act(e, l->gate_act, "out");
    put(e, " * ");
    put_act(e, l->act, "v");
    put(e, ");\n");
}

static void put_keep(const emitter *e, const sli_stream_layer *l, const char *q, int count) {
    if (l->options & CELL_ZONEOUT_H)
        put(e, "    for (int k = 0; k < %d; k++) h[k] = %sf * h[k] + %sf * %s[k];\n", count, sli_hex_of(l->zone_h).text,
            sli_hex_of(1.0f - l->zone_h).text, q);
    else
        put(e, "    for (int k = 0; k < %d; k++) h[k] = %s[k];\n", count, q);
}

/* n and the new h of a GRU from u = slot 0, its recurrent part `a`, z = slot 2. */
static void put_gru_end(const emitter *e, const sli_stream_layer *l, const char *u, const char *a, const char *z) {
    char sum[128];
    snprintf(sum, sizeof sum, "%s + %s", u, a);
    put(e, "            const @_vector update = %s, before = @_load(h + u);\n            @_vector n = ", z);
    put_act(e, l->act, sum);
    put(e, ";\n            n = (1.0f - update) * n + update * before;\n");
    if (l->options & CELL_ZONEOUT_H)
        put(e, "            n = %sf * before + %sf * n;\n", sli_hex_of(l->zone_h).text,
            sli_hex_of(1.0f - l->zone_h).text);
    put(e, "            @_store(h + u, n);\n");
}

static void put_any_gru(const emitter *e, const sli_stream_layer *l) {
    put(e, "            const @_vector reset = ");
    put_act(e, l->gate_act, "z[UNITS + i]");
    put(e, ";\n");
    if (resets_before(l)) {
        put(e, "            @_store(rh + u, reset * @_load(h + u));\n            @_store(nu + u, z[i]);\n"
               "            @_store(zu + u, ");
        put_act(e, l->gate_act, "z[2 * UNITS + i]");
        put(e, ");\n");
        return;
    }
    char gate[128];
    snprintf(gate, sizeof gate, "%s(z[2 * UNITS + i])", act_calls[l->gate_act]);
    put_gru_end(e, l, "z[i]", "reset * z[3 * UNITS + i]", gate);
}

static void put_cell(const emitter *e, int index, const sli_stream_layer *l) {
    put(e, "        @_UNROLL\n        for (int i = 0; i < UNITS; i++) {\n            const int u = b + i * @_LANES;\n");
    if (is_usual(l) && l->kind == SLI_STREAM_LSTM)
        put(e, "            @_lstm(z + i, UNITS, h + u, c + u);\n");
    else if (is_usual(l))
        put(e, "            @_gru(z + i, UNITS, h + u);\n");
    else if (l->kind == SLI_STREAM_LSTM)
        put_any_lstm(e, index, l);
    else if (l->kind == SLI_STREAM_GRU)
        put_any_gru(e, l);
    else {
        put(e, "            @_store(%s + u, ", l->kind == SLI_STREAM_RNN ? "m" : "h");
        put_act(e, l->act, "z[i]");
        put(e, ");\n");
    }
    put(e, "        }\n    }\n");
}

/* Local memory of a layer's function. */
static void put_locals(const emitter *e, int index, const sli_stream_layer *l, bool one_hot) {
    const int units = round_up(l->units, block_of(l));
    if (e->i8)
        put_i8_locals(e, index, l, one_hot, takes_table(e, index));
    else if (cut_of(l).h_gates || !one_hot)
        put(e, "    const float *w = @_%d_weights;\n", index);
    if (needs_old(l) && !e->i8)
        put(e, "    float old[%d];\n    for (int k = 0; k < %d; k++) old[k] = h[k];\n", l->outputs, l->outputs);
    if (l->kind == SLI_STREAM_RNN || (l->kind == SLI_STREAM_LSTM && !is_usual(l)))
        put(e, "    float m[%d] @_ALIGNED;\n", units);
    if (resets_before(l))
        put(e, "    float rh[%d] @_ALIGNED, nu[%d] @_ALIGNED, zu[%d] @_ALIGNED, a[%d] @_ALIGNED;\n", units, units,
            units, round_up(l->units, plain_block(l->units)));
    if (l->options & CELL_PROJECTION) put(e, "    float q[%d] @_ALIGNED;\n", padded(l));
    if (!e->i8 && (resets_before(l) || l->options & CELL_PROJECTION))
        put(e, "    static const float nothing[64] = {0};\n");
}

static void put_few(const emitter *e, int index, const sli_stream_layer *l) {
    put(e, "    for (int u = 0; u < %d; u++) {\n        const float *w = @_%d_weights + u * %d;\n", l->units, index,
        round_up(l->inputs, 16));
    put(e, "        float sum[16] = {0};\n        int k = 0;\n");
    put(e,
        "        for (; k + 16 <= %d; k += 16)\n            for (int i = 0; i < 16; i++) sum[i] += w[k + i] * x[k + "
        "i];\n",
        l->inputs);
    put(e, "        for (int i = 0; k < %d; i++, k++) sum[i] += w[k] * x[k];\n", l->inputs);
    put(e,
        "        for (int n = 8; n >= 1; n /= 2)\n            for (int i = 0; i < n; i++) sum[i] += sum[n + i];\n"
        "        h[u] = sum[0] + @_%d_bias[u];\n    }\n",
        index);
    if (l->act == CELL_ACT_LINEAR) return;
    put(e, "    for (int u = %d; u < 16; u++) h[u] = 0.0f;\n", l->units);
    put(e, "    for (int u = 0; u < 16; u += @_LANES) @_store(h + u, ");
    put_act(e, l->act, "@_load(h + u)");
    put(e, ");\n");
}

/* The loop over blocks, b their first unit. */
static void put_blocks(const emitter *e, int index, const sli_stream_layer *l, bool one_hot) {
    const cut c = cut_of(l);
    const int block = block_of(l), units = round_up(l->units, block), last = units / block - 1;
    if (!turns(e, l)) {
        put(e, "    for (int b = 0; b < %d; b += %d) {\n", units, block);
        return;
    }
    put(e, "    for (int turn = 0; turn <= %d; turn++) {\n        const int b = (back ? %d - turn : turn) * %d;\n",
        last, last, block);
    put(e, "        w = @_%d_weights + (long)b * %d;\n", index,
        (one_hot ? 0 : c.x_gates * l->inputs) + c.h_gates * l->outputs);
}

static void put_layer(const emitter *e, int index, const sli_stream_layer *l, bool one_hot) {
    static const char *const kinds[] = {"", "", "", "dense", "LSTM", "GRU", "simple RNN"};
    put(e, "\n/* Layer %d: %s, %d -> %d. */\nstatic void @_layer_%d(float *h%s%s, %s) {\n", index, kinds[l->kind],
        l->inputs, l->outputs, index, l->kind == SLI_STREAM_LSTM ? ", float *c" : "", turns(e, l) ? ", int back" : "",
        one_hot || takes_table(e, index) ? "int token" : "const float *x");
    if (is_few(e, l) && !one_hot) {
        put_few(e, index, l);
        put(e, "}\n");
        return;
    }
    put_locals(e, index, l, one_hot);
    put_blocks(e, index, l, one_hot);
    put_block_products(e, index, l, one_hot);
    put_cell(e, index, l);
    if (l->options & CELL_PROJECTION) put_plain(e, index, "projection", l->outputs, l->units, "m", "q");
    if (l->kind == SLI_STREAM_LSTM && !is_usual(l))
        put_keep(e, l, l->options & CELL_PROJECTION ? "q" : "m", l->outputs);
    if (l->kind == SLI_STREAM_RNN) put_keep(e, l, "m", l->outputs);
    if (resets_before(l)) {
        put_plain(e, index, "reset", l->units, l->outputs, "rh", "a");
        put(e, "    for (int u = 0; u < %d; u += @_LANES) {\n", round_up(l->units, block_of(l)));
        put_gru_end(e, l, "@_load(nu + u)", "@_load(a + u)", "@_load(zu + u)");
        put(e, "    }\n");
    }
    put(e, "}\n");
}

/* ------------------------------------------------------------------------------------------------------- the file -- */
static size_t state_floats(const emitter *e) {
    size_t count = 0;
    for (int i = 0; i < e->layers->count; i++) {
        const sli_stream_layer *l = &e->layers->layer[i];
        if (!sli_stream_is_recurrent(l)) continue;
        count += (size_t)padded(l) + (l->kind == SLI_STREAM_LSTM ? (size_t)round_up(l->units, block_of(l)) : 0);
    }
    return count;
}

static size_t weight_bytes(const emitter *e) {
    size_t bytes = 0;
    for (int i = 0; i < e->layers->count; i++)
        for (int id = 0; id < SLI_STREAM_ARRAYS; id++) {
            const bool matrix = id == SLI_STREAM_KERNEL || id == SLI_STREAM_RECURRENT || id == SLI_STREAM_PROJECTION;
            bytes += (size_t)sli_stream_array_floats(&e->layers->layer[i], (sli_stream_array_id)id) *
                     (e->i8 && matrix ? 1 : sizeof(float));
        }
    return bytes;
}

static void put_header(const emitter *e, bool tokens, int inputs, int outputs) {
    put(e, "/* @: a trained network as C99, one step at a time; made by `sluice convert`. It calls nothing.\n *\n");
    put(e, " *     @_state state;\n *     @_reset(&state);\n");
    if (tokens)
        put(e, " *     @_step(&state, token, y);    token 0..%d -> y[%d]\n *\n", inputs - 1, outputs);
    else
        put(e, " *     @_step(&state, x, y);        x[%d] -> y[%d]\n *\n", inputs, outputs);
    put(e,
        " * Memory: about %zu bytes of constants, %zu of state, no heap. Any number of states; a step is safe in any "
        "thread that\n"
        " * has its own. Fast where the compiler vectorises: gcc or clang -O3 -march=native -ffp-contract=fast. Set "
        "the processor to\n"
        " * flush denormal numbers if signals fade to nothing.%s\n"
        " *\n * Other files of the program define @_DECLARATIONS, include this file, and see the declarations alone.\n "
        "*/\n",
        weight_bytes(e), 4 * (state_floats(e) + any_turns(e)),
        tokens
            ? ""
            : " Samples are not\n * looked at: what a NaN or an infinite one does to the state lasts until @_reset.");
    put(e, "#ifndef @_DECLARED\n#define @_DECLARED\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    put(e, "enum { @_%s = %d, @_OUTPUTS = %d };\n", tokens ? "VOCABULARY" : "INPUTS", inputs, outputs);
    put(e, "typedef struct @_state {\n");
    bool any = false;
    for (int i = 0; i < e->layers->count; i++) {
        const sli_stream_layer *l = &e->layers->layer[i];
        if (!sli_stream_is_recurrent(l)) continue;
        put(e, "    float h%d[%d];\n", i, padded(l));
        if (l->kind == SLI_STREAM_LSTM) put(e, "    float c%d[%d];\n", i, round_up(l->units, block_of(l)));
        any = true;
    }
    if (!any) put(e, "    float none;\n");
    if (any_turns(e))
        put(e, "    int back; /* the next step begins with the last units; the numbers do not depend on it */\n");
    put(e, "} @_state;\nvoid @_reset(@_state *state);\nvoid @_step(@_state *state, %s, float *y);\n",
        tokens ? "int token" : "const float *x");
    put(e, "#ifdef __cplusplus\n}\n#endif\n#endif\n\n#ifndef @_DECLARATIONS\n");
}

static void put_reset(const emitter *e) {
    bool any = false;
    put(e, "\nvoid @_reset(@_state *state) {\n");
    for (int i = 0; i < e->layers->count; i++) {
        const sli_stream_layer *l = &e->layers->layer[i];
        if (!sli_stream_is_recurrent(l)) continue;
        put(e, "    for (int k = 0; k < %d; k++) state->h%d[k] = 0.0f;\n", padded(l), i);
        if (l->kind == SLI_STREAM_LSTM)
            put(e, "    for (int k = 0; k < %d; k++) state->c%d[k] = 0.0f;\n", round_up(l->units, block_of(l)), i);
        any = true;
    }
    if (any_turns(e)) put(e, "    state->back = 0;\n");
    put(e, any ? "}\n\n" : "    state->none = 0.0f;\n}\n\n");
}

static void put_step(const emitter *e, bool tokens) {
    const sli_stream_layers *layers = e->layers;
    char input[96];
    snprintf(input, sizeof input, "%s", tokens ? "token" : "x");
    put_reset(e);
    put(e, "void @_step(@_state *state, %s, float *y) {\n", tokens ? "int token" : "const float *x");
    for (int i = 0; i < layers->count; i++)
        if (layers->layer[i].kind == SLI_STREAM_DENSE)
            put(e, "    float y%d[%d] @_ALIGNED;\n", i, padded(&layers->layer[i]));
    bool any = false;
    for (int i = 0; i < layers->count; i++) {
        const sli_stream_layer *l = &layers->layer[i];
        any = any || sli_stream_is_recurrent(l);
        if (l->kind == SLI_STREAM_EMBEDDING && !takes_table(e, i + 1))
            snprintf(input, sizeof input, "@_%d_table + (long)token * %d", i, l->units);
        if (l->kind < SLI_STREAM_DENSE) continue;
        char output[32];
        snprintf(output, sizeof output, l->kind == SLI_STREAM_DENSE ? "y%d" : "state->h%d", i);
        put(e, "    @_layer_%d(%s, ", i, output);
        if (l->kind == SLI_STREAM_LSTM) put(e, "state->c%d, ", i);
        if (turns(e, l)) put(e, "state->back, ");
        put(e, "%s);\n", input);
        snprintf(input, sizeof input, "%s", output);
    }
    if (!any) put(e, "    (void)state;\n");
    if (any_turns(e)) put(e, "    state->back = !state->back;\n");
    put(e,
        "    {\n        const float *last = %s;\n        for (int k = 0; k < @_OUTPUTS; k++) y[k] = last[k];\n    "
        "}\n}\n",
        input);
}

void sli_stream_emit_c(const sli_stream_layers *layers, const char *name, bool i8, sli_text *text) {
    const emitter e = {text, name, layers, i8};
    const bool tokens = sli_stream_takes_tokens(layers), one_hot = layers->layer[0].kind == SLI_STREAM_ONE_HOT;
    put_header(&e, tokens, layers->layer[0].inputs, layers->layer[layers->count - 1].outputs);
    put_functions(&e);
    put(&e, "\n");
    for (int i = 0; i < layers->count; i++) put_numbers(&e, i, &layers->layer[i], one_hot && i == 1);
    for (int i = 0; i < layers->count; i++)
        if (layers->layer[i].kind >= SLI_STREAM_DENSE) put_layer(&e, i, &layers->layer[i], one_hot && i == 1);
    put_step(&e, tokens);
    put(&e, "#endif\n");
}
