/* sli_cuda_multiply on the CPU: in pieces of k, as a pair, of floats that are to be operands. */
#ifndef SLI_TESTS_EMULATE_PRODUCT_H
#define SLI_TESTS_EMULATE_PRODUCT_H

#include "operands.h"
#include "backend/cuda/runtime/small_fit.h"

static inline float operand_of(sl_dtype math, float x) {
    uint32_t kept;
    put_operand(math, &kept, 0, x);
    return operand(math, &kept, 0);
}

/* D of piece `piece` of a product, which is none of a pair any more. */
static inline void emulated_piece(const sli_cuda_product *p, int64_t first, int64_t end, void *to) {
    for (int64_t m = 0; m < p->m; m++)
        for (int64_t n = 0; n < p->n; n++) {
            float sum = 0;
            for (int64_t k = first; k < end; k++) {
                const int64_t at = p->a.transposed ? k * p->a.row + m : m * p->a.row + k;
                const float a = p->a_floats ? operand_of(p->math, static_cast<const float *>(p->a.data)[at])
                                            : operand(p->math, p->a.data, at);
                sum += a * operand(p->math, p->b.data, p->b.transposed ? n * p->b.row + k : k * p->b.row + n);
            }
            const int64_t at = m * p->d_row + n;
            float *d = static_cast<float *>(to) + at;
            const float old = p->beta == 0.0f ? 0.0f : p->narrow_d ? operand(p->math, to, at) : *d;
            const float all = old + sum + (p->bias ? p->bias[n] : 0.0f);
            if (p->narrow_d)
                put_operand(p->math, to, at, all);
            else
                *d = all;
        }
}

/* The second of a pair. */
static inline sli_cuda_product second_of_pair(const sli_cuda_product *p) {
    const int64_t element = (int64_t)sli_cuda_operand_bytes(p->math);
    sli_cuda_product second = *p;
    second.paired = false;
    second.a.data = static_cast<const char *>(p->a.data) + p->a_apart * element;
    second.b.data = static_cast<const char *>(p->b.data) + p->b_apart * element;
    second.d = sli_cuda_d_at(p, p->d_apart);
    return second;
}

/* What is wrong with it; or empty. */
static inline std::string emulated_multiply(const sli_cuda_product *p) {
    const int64_t pieces = p->pieces > 1 ? p->pieces : 1, each = p->k / pieces;
    if (p->k % pieces != 0 || (pieces > 1 && (p->beta != 0.0f || p->bias || p->paired)))
        return "a product in pieces as there is none";
    if (p->paired && (p->a_apart % 8 != 0 || p->b_apart % 8 != 0 || p->d_apart % (p->narrow_d ? 8 : 4) != 0 ||
                      p->a_apart < 0 || p->b_apart <= 0 || p->d_apart <= 0 || p->bias))
        return "a pair that lies as none does";
    for (int64_t piece = 0; piece < pieces; piece++)
        emulated_piece(p, piece * each, (piece + 1) * each, sli_cuda_d_at(p, piece * p->d_apart));
    if (!p->paired) return "";
    const sli_cuda_product second = second_of_pair(p);
    return emulated_multiply(&second);
}

/* sli_cuda_move_rows. */
static inline void emulated_move(const sli_cuda_move *m) {
    for (int64_t i = 0; i < m->count * m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++) {
            const int64_t matrix = i / m->rows, row = i % m->rows, to = matrix * m->to_apart + row * m->to_row + j;
            const float x = operand(m->from_type, m->from, matrix * m->from_apart + row * m->from_row + j);
            put_operand(m->to_type, m->to, to, m->add ? operand(m->to_type, m->to, to) + x : x);
        }
}

#endif
