// A step of an LSTM or GRU as real-time audio libraries write it (RTNeural's kind): a class template whose sizes are constants, plain
// arrays, column by column products that the compiler keeps in vectors, activations by loops over the units. Biases, and the
// order of gates, as in Sluice, so that both compute the same model. The activations are the same as Sluice's, in C++: what is
// compared is how the step is put together.
#include <cstring>

#include "stream_peer.h"

namespace {

// src/cell/activations.h: the same polynomials.
inline float clamp(float x, float low, float high) {
    const float y = x < low ? low : x;
    return y > high ? high : y;
}

inline float exponential(float x) {
    const float magic = 12582912.0f, shifted = x * 1.44269504f + magic, n = shifted - magic;
    const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    unsigned bits, one;
    std::memcpy(&bits, &shifted, 4);
    std::memcpy(&one, &magic, 4);
    bits = (bits - one + 127u) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return p * power;
}

inline float sigmoid(float x) {
    return 1.0f / (1.0f + exponential(clamp(-x, -88.0f, 88.0f)));
}

inline float tanh_of(float x) {
    x = clamp(x, -9.02f, 9.02f);
    const float s = x * x;
    float p = -8.437000914e-14f;
    p = p * s + 5.258301665e-11f;
    p = p * s + -2.018537928e-08f;
    p = p * s + 1.114467670e-05f;
    p = p * s + 3.103046294e-03f;
    p = p * s + 1.308319868e-01f;
    p = p * s + 9.999999933e-01f;
    float q = 2.544813718e-04f;
    q = q * s + 2.449156488e-02f;
    q = q * s + 4.641652570e-01f;
    q = q * s + 1.0f;
    return clamp(x * p / q, -1.0f, 1.0f);
}

template <int rows, int columns> struct Matrix {
    static constexpr int block = rows <= 64 ? rows : rows % 64 ? 48 : 64; // rows whose sums fit into registers
    alignas(64) float column[columns][rows];
    void set(const float *from) { // [rows][columns]
        for (int r = 0; r < rows; r++)
            for (int k = 0; k < columns; k++) column[k][r] = from[r * columns + k];
    }
    void add_product(const float *v, float *y) const {
        for (int first = 0; first < rows; first += block) {
            float sum[block];
            for (int r = 0; r < block; r++) sum[r] = y[first + r];
            for (int k = 0; k < columns; k++)
                for (int r = 0; r < block; r++) sum[r] += column[k][first + r] * v[k];
            for (int r = 0; r < block; r++) y[first + r] = sum[r];
        }
    }
};

template <int inputs, int units> class Lstm : public stream_peer {
    Matrix<4 * units, inputs> kernel;
    Matrix<4 * units, units> recurrent;
    alignas(64) float bias[4 * units], h[units], c[units];

  public:
    Lstm(const float *w, const float *r, const float *b) {
        kernel.set(w);
        recurrent.set(r);
        std::memcpy(bias, b, sizeof bias);
        std::memset(h, 0, sizeof h);
        std::memset(c, 0, sizeof c);
    }
    const float *step(const float *x) override {
        alignas(64) float z[4 * units];
        for (int i = 0; i < 4 * units; i++) z[i] = bias[i];
        kernel.add_product(x, z);
        recurrent.add_product(h, z);
        for (int i = 0; i < 2 * units; i++) z[i] = sigmoid(z[i]);
        for (int i = 2 * units; i < 3 * units; i++) z[i] = tanh_of(z[i]);
        for (int i = 3 * units; i < 4 * units; i++) z[i] = sigmoid(z[i]);
        for (int i = 0; i < units; i++) c[i] = z[units + i] * c[i] + z[i] * z[2 * units + i];
        for (int i = 0; i < units; i++) h[i] = z[3 * units + i] * tanh_of(c[i]);
        return h;
    }
};

template <int inputs, int units> class Gru : public stream_peer {
    Matrix<3 * units, inputs> kernel;
    Matrix<3 * units, units> recurrent;
    alignas(64) float bias[3 * units], state_bias[units], h[units];

  public:
    Gru(const float *w, const float *r, const float *b, const float *n) {
        kernel.set(w);
        recurrent.set(r);
        std::memcpy(bias, b, sizeof bias);
        std::memcpy(state_bias, n, sizeof state_bias);
        std::memset(h, 0, sizeof h);
    }
    const float *step(const float *x) override {
        alignas(64) float u[3 * units], s[3 * units];
        for (int i = 0; i < 3 * units; i++) u[i] = bias[i];
        for (int i = 0; i < 2 * units; i++) s[i] = 0.0f;
        for (int i = 0; i < units; i++) s[2 * units + i] = state_bias[i];
        kernel.add_product(x, u);
        recurrent.add_product(h, s);
        for (int i = 0; i < 2 * units; i++) u[i] = sigmoid(u[i] + s[i]);
        for (int i = 0; i < units; i++) {
            const float n = tanh_of(u[2 * units + i] + u[i] * s[2 * units + i]);
            h[i] = (1.0f - u[units + i]) * n + u[units + i] * h[i];
        }
        return h;
    }
};

template <int units> stream_peer *make(int gru, const float *w, const float *r, const float *b, const float *n) {
    if (gru) return new Gru<1, units>(w, r, b, n);
    return new Lstm<1, units>(w, r, b);
}

} // namespace

extern "C" stream_peer *stream_peer_new(int gru, int units, const float *kernel, const float *recurrent,
                                        const float *bias, const float *state_bias) {
    switch (units) {
    case 8: return make<8>(gru, kernel, recurrent, bias, state_bias);
    case 16: return make<16>(gru, kernel, recurrent, bias, state_bias);
    case 32: return make<32>(gru, kernel, recurrent, bias, state_bias);
    case 64: return make<64>(gru, kernel, recurrent, bias, state_bias);
    case 128: return make<128>(gru, kernel, recurrent, bias, state_bias);
    case 256: return make<256>(gru, kernel, recurrent, bias, state_bias);
    default: return nullptr;
    }
}
extern "C" const float *stream_peer_step(stream_peer *peer, const float *x) { return peer->step(x); }
extern "C" void stream_peer_free(stream_peer *peer) { delete peer; }
