/* Packed weights of the persistent rows: what one launch gives is what each part by itself is. */
#include <string.h>
#include <random>
#include "backend/cuda/kernels/persist_host.cuh"
#include "backend/cuda/kernels/persist_sizes.cuh"
#include "cases.h"

void persist_pack_in_pieces(const step_way *way, const sli_persist_pair *pair, const sli_persist_packed *at,
                            const void *recurrent, int64_t row); /* persist_pack_pieces.cpp */

namespace {

using floats = std::vector<float>;

struct layer {
    sli_call call;
    sli_persist_pair pair;
    step_way way;
    floats w, r, b, rb;
    std::vector<const void *> params;
    std::string failure;
};

floats drawn(size_t count, std::mt19937_64 &random) {
    floats values(count);
    for (float &v : values) v = (float)((double)(random() >> 11) * 0x1p-52 - 1);
    return values;
}

/* A piece of an operand of W as float. */
float widened(const char *at, sl_dtype math, size_t index) {
    uint16_t bits;
    float value;
    if (math == SL_BF16 || math == SL_F16) {
        memcpy(&bits, at + 2 * index, sizeof bits);
        return math == SL_BF16 ? emulate::from_bf16(bits) : emulate::from_f16(bits);
    }
    memcpy(&value, at + 4 * index, sizeof value);
    return value;
}
float rounded(float x, sl_dtype math) {
    return math == SL_BF16  ? emulate::from_bf16(emulate::to_bf16(x))
           : math == SL_F16 ? emulate::from_f16(emulate::to_f16(x))
                            : x;
}

std::vector<char> packed(layer *l, const sli_persist_pair &pair, bool train, const sli_persist_packed &at,
                         decltype(sli_persist_pack) *pack = sli_persist_pack) {
    std::vector<uint4> memory(at.stride / sizeof(uint4), make_uint4(~0u, ~0u, ~0u, ~0u));
    l->way.weights = reinterpret_cast<char *>(memory.data());
    l->way.s.train = train;
    pack(&l->way, &pair, &at, (const float *)l->way.param[SLI_RNN_RECURRENT], l->way.s.H);
    return std::vector<char>(l->way.weights, l->way.weights + at.stride);
}

/* Of parameters of 16 bits the same bytes, but for W, which is read where it is unless its rows are padded; what cells read as floats lies behind the biases. */
std::string check_narrow(layer *l, sli_problem p, const sli_persist_packed &at, const std::vector<char> &both) {
    const sli_step_shape s = l->way.s;
    p.narrow = true;
    const sli_persist_packed narrow = sli_persist_layout_packed(&p, &l->pair);
    std::vector<std::vector<uint16_t>> halves;
    std::vector<const void *> params;
    for (const floats *from : {&l->w, &l->r, &l->b, &l->rb}) {
        halves.emplace_back();
        for (const float v : *from)
            halves.back().push_back((uint16_t)(p.dtype == SL_BF16 ? emulate::to_bf16(v) : emulate::to_f16(v)));
        params.push_back(halves.back().data());
    }
    if (p.bias != SL_BIAS_DOUBLE) params[SLI_RNN_RECURRENT_BIAS] = nullptr;
    params.resize(SLI_PART_PARAMS);
    l->call.problem = p;
    l->way.s = sli_step_shape_of(&p, 1);
    l->way.packed = narrow.step;
    l->way.param = params.data();
    const std::vector<char> own = packed(l, l->pair, true, narrow);
    if (!l->failure.empty()) return l->failure;
    const bool apart = s.gru && !s.before && p.bias == SL_BIAS_DOUBLE;
    for (int64_t j = 0; apart && j < s.H; j++)
        if (widened(&own[narrow.step.bias_n], SL_F32, (size_t)j) != l->rb[(size_t)(2 * s.H + j)]) return "n's bias differs";
    if (l->way.s.copy_w && memcmp(&own[narrow.step.kernel], &both[at.step.kernel], (size_t)(s.zs * s.xs) * s.operand) != 0)
        return "W of 16 bits differs";
    const struct {
        const char *name;
        size_t own, other, bytes;
    } parts[] = {{"R", narrow.forward, at.forward, sli_persist_packed_bytes(&l->pair.forward)},
                 {"R^T", narrow.backward, at.backward, sli_persist_packed_bytes(&l->pair.backward)},
                 {"the biases", narrow.step.bias, at.step.bias, (size_t)s.zs * sizeof(float)}};
    for (const auto &part : parts)
        if (memcmp(&own[part.own], &both[part.other], part.bytes) != 0) return emulate_say("%s of 16 bits: they differ", part.name);
    return "";
}

std::string check(const char *text, sli_persist_kind kind, bool tight, uint64_t seed) {
    sli_problem p;
    sli_caps caps = {};
    sli_why why = {""};
    layer l = {};
    std::mt19937_64 random(seed);
    if (sli_problem_parse(text, &p) != SL_OK) return "no problem";
    caps.kind = SLI_DEVICE_CUDA;
    caps.compute_capability = 90;
    caps.multiprocessors = 132;
    caps.shared_memory = 227 << 10;
    caps.l2_bytes = 50 << 20;
    if (!sli_persist_pair_of(&p, sli_planned{}, &caps, kind, &l.pair, &why)) return why.text;
    if (l.pair.forward.tight != (tight && !l.pair.forward.scaled) || l.pair.backward.tight != tight) return "weights are of another width";
    if (l.pair.forward.scaled != (p.dtype == SL_TF32 && p.act != SL_ACT_RELU)) return "scaled or not";
    const sli_persist_packed at = sli_persist_layout_packed(&p, &l.pair);
    const sli_step_shape s = sli_step_shape_of(&p, 1);
    l.w = drawn((size_t)(s.GH * s.I), random);
    l.r = drawn((size_t)(s.GH * s.H), random);
    l.b = drawn((size_t)s.GH, random);
    l.rb = drawn((size_t)s.GH, random);
    for (floats *values : {&l.w, &l.r, &l.b, &l.rb})
        for (float &v : *values) v = rounded(v, p.dtype);
    l.params = {l.w.data(), l.r.data(), l.b.data(), p.bias == SL_BIAS_DOUBLE ? l.rb.data() : nullptr, nullptr, nullptr};
    l.way.call = &l.call;
    l.way.s = s;
    l.way.packed = at.step;
    l.way.param = l.params.data();
    l.way.seed = seed;
    l.way.failure = &l.failure;
    const std::vector<char> both = packed(&l, l.pair, true, at);
    if (!l.failure.empty()) return l.failure;
    float largest = 0, found = 0;
    for (const float x : l.r) largest = fmaxf(largest, fabsf(x));
    for (size_t k = 0; k < PERSIST_LARGEST && l.pair.forward.scaled; k++) found = fmaxf(found, widened(&both[at.largest], SL_F32, k));
    if (l.pair.forward.scaled && found != largest) return emulate_say("the largest weight is %g, not %g", (double)found, (double)largest);
    if (packed(&l, l.pair, true, at, persist_pack_in_pieces) != both) return "in pieces it differs";
    if (!l.failure.empty()) return l.failure;
    /* Each form of R alone, in the place of forward's. */
    for (int backward = 0; backward < 2; backward++) {
        sli_persist_pair alone = l.pair;
        if (backward) alone.forward = l.pair.backward;
        sli_persist_packed there = at;
        there.forward = backward ? at.backward : at.forward;
        const std::vector<char> one = packed(&l, alone, false, there);
        if (memcmp(&one[there.forward], &both[there.forward], sli_persist_packed_bytes(&alone.forward)) != 0)
            return backward ? "R^T differs" : "R differs";
    }
    /* W is left as it is where the optimizer has written its copy. */
    l.call.copied = true;
    const std::vector<char> rest = packed(&l, l.pair, true, at);
    if (memcmp(rest.data(), both.data(), (size_t)at.step.kernel) != 0) return "what lies before W differs without it";
    for (size_t k = 0; s.copy_w && k < (size_t)(s.zs * s.xs) * s.operand; k++)
        if (rest[at.step.kernel + k] != (char)~0) return "W was packed though it is copied";
    l.call.copied = false;
    for (int64_t row = 0; s.copy_w && row < s.zs; row++)
        for (int64_t i = 0; i < s.xs; i++) {
            const float given = widened(&both[at.step.kernel], p.dtype, (size_t)(row * s.xs + i));
            const float wanted = row < s.GH && i < s.I ? rounded(l.w[(size_t)(row * s.I + i)], p.dtype) : 0.0f;
            if (memcmp(&given, &wanted, sizeof given) != 0)
                return emulate_say("W[%d][%d] is %g, not %g", (int)row, (int)i, (double)given, (double)wanted);
        }
    for (int64_t j = 0; j < s.zs; j++) {
        const bool gate = j < s.GH, adds = gate && p.bias == SL_BIAS_DOUBLE && !(s.gru && !s.before && j >= 2 * s.H);
        const float wanted = (gate ? l.b[(size_t)j] : 0.0f) + (adds ? l.rb[(size_t)j] : 0.0f);
        if (widened(&both[at.step.bias], SL_F32, (size_t)j) != wanted) return emulate_say("bias %d differs", (int)j);
    }
    return p.dtype == SL_BF16 || p.dtype == SL_F16 ? check_narrow(&l, p, at, both) : "";
}

} // namespace

EMULATE_CASE("pack: one launch gives R, R^T, W and biases") {
    static const struct {
        const char *text;
        sli_persist_kind kind;
        bool tight; /* weights of 20 bits, both ways, but of what is scaled */
    } cases[] = {
        {"lstm:b3_t4_i10_h33_bf16_train", SLI_PERSIST_KIND_CLUSTER, false},
        {"lstm:b3_t4_i12_h40_bf16_train", SLI_PERSIST_KIND_GRID, false},
        {"gru:b9_t4_i8_h21_tf32_train", SLI_PERSIST_KIND_CLUSTER, false},
        {"gru:b9_t4_i7_h24_f16_train", SLI_PERSIST_KIND_GRID, false},
        {"gru:b9_t4_i7_h24_bf16_train+bias=double+reset=before", SLI_PERSIST_KIND_GRID, false},
        {"gru:b9_t4_i16_h24_f16_train+bias=double", SLI_PERSIST_KIND_CLUSTER, false},
        {"rnn:b2_t4_i5_h17_f32x3_train", SLI_PERSIST_KIND_CLUSTER, false},
        {"lstm:b2_t4_i5_h9_f32_train+bias=double", SLI_PERSIST_KIND_GRID, false},
        {"lstm:b128_t4_i3_h300_tf32_train", SLI_PERSIST_KIND_GRID, true},
        {"lstm:b128_t4_i3_h300_tf32_train+act=relu", SLI_PERSIST_KIND_GRID, true},
    };
    for (const auto &c : cases) {
        const std::string wrong = check(c.text, c.kind, c.tight, seed);
        if (!wrong.empty()) return emulate_say("%s: %s", c.text, wrong.c_str());
    }
    return "";
}

/* The largest of its kind comes between 2^14 and 2^15, whatever it is; 2^-28 of it is what it is in tf32, what is smaller errs by 2^-38 of it at most. */
EMULATE_CASE("pack: scaled operands are those of tf32") {
    std::mt19937_64 random(seed);
    for (int power = -70; power <= 70; power += 7) {
        const float largest = ldexpf(1.0f + (float)(random() % 1000) / 1001.0f, power), scale = persist_scale(largest);
        const bool inside = abs(power) <= 46; /* beyond, a scale has an end */
        if (inside && !(largest * scale >= 0x1p14f && largest * scale < 0x1p15f)) return emulate_say("%g times %g", (double)largest, (double)scale);
        if (scale * persist_inverse(scale) != 1.0f) return "an inverse";
        for (int i = 0; i < 4000 && inside; i++) {
            uint32_t bits = (uint32_t)(random() >> 40); /* of its fraction: of any kind, in the middle, beside it */
            if (i % 4 == 1) bits = (bits & ~0x1fffu) | 0x1000u;
            if (i % 4 == 2) bits = (bits & ~0x1fffu) | (i % 8 == 2 ? 0x0fffu : 0x1001u);
            const float one = __uint_as_float(0x3f800000u | (bits & 0x7fffffu)), below = (float)(random() % 40);
            const float x = (random() & 1 ? -1.0f : 1.0f) * fminf(one * ldexpf(1.0f, power - (int)below), largest);
            const float given = emulate::from_f16(persist_scaled_bits(x, scale)) / scale;
            const float wanted = __uint_as_float(emulate::to_tf32(__float_as_uint(x)));
            const bool all = fabsf(x) >= largest * 0x1p-28f;
            if (all ? given != wanted : fabsf(given - x) > largest * 0x1p-38f)
                return emulate_say("%a of at most %a: %a, not %a", (double)x, (double)largest, (double)given, (double)wanted);
        }
    }
    if (!isinf(emulate::from_f16(persist_scaled_bits(INFINITY, 1.0f))) || !isnan(emulate::from_f16(persist_scaled_bits(NAN, 1.0f)))) return "no number became one";
    for (const float x : {65520.0f, 65536.0f, 3e38f, INFINITY})
        if (!isnan(emulate::from_f16(persist_scaled_or_nan(x, 1.0f))) || !isnan(emulate::from_f16(persist_scaled_or_nan(-x, 8.0f)))) return "what f16 does not have is a number";
    if (emulate::from_f16(persist_scaled_or_nan(65504.0f, 1.0f)) != 65504.0f || !isnan(emulate::from_f16(persist_scaled_or_nan(NAN, 8.0f)))) return "what it has is";
    return emulate::from_f16(persist_scaled_bits(0.0f, 0x1p60f)) == 0.0f ? "" : "0 is no longer 0";
}
