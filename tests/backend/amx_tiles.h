/* AMX's tile instructions in plain C, before what is written with them is included. Strict: tiles must be configured,
 * operands must fit each other, and what is wrong ends the program. */
#ifndef AMX_TILES_H
#define AMX_TILES_H

#define SLI_AMX_EMULATED 1
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} amx_config;

static _Thread_local struct {
    amx_config config;
    unsigned char row[8][16][64];
    int configurations; /* how often they were loaded */
    bool held[8];       /* loaded or added to since it was zeroed last */
    int most_held;      /* at a time */
} amx;

static inline void amx_insist(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "emulated AMX: %s\n", what);
    abort();
}

static inline void amx_hold(int t) {
    int held = 0;
    amx.held[t] = true;
    for (int i = 0; i < 8; i++) held += amx.held[i];
    if (held > amx.most_held) amx.most_held = held;
}

static inline int amx_most_held(void) {
    const int most = amx.most_held;
    amx.most_held = 0;
    return most;
}

static inline void _tile_release(void) {
    memset(&amx.config, 0, sizeof amx.config);
    memset(amx.held, 0, sizeof amx.held);
}

static inline void _tile_loadconfig(const void *config) {
    memcpy(&amx.config, config, sizeof amx.config);
    amx_insist(sizeof amx.config == 64 && amx.config.palette == 1, "palette is not 1");
    for (int i = 0; i < 8; i++)
        amx_insist(amx.config.rows[i] <= 16 && amx.config.bytes[i] <= 64, "a tile is larger than 16 rows of 64 bytes");
    memset(amx.row, 0, sizeof amx.row);
    memset(amx.held, 0, sizeof amx.held);
    amx.configurations++;
}

static inline void amx_insist_tile(int t) {
    amx_insist(t >= 0 && t < 8 && amx.config.palette == 1 && amx.config.rows[t] > 0, "a tile that is not configured");
}

static inline void _tile_zero(int t) {
    amx_insist_tile(t);
    memset(amx.row[t], 0, sizeof amx.row[t]);
    amx.held[t] = false;
}

static inline void _tile_loadd(int t, const void *base, ptrdiff_t stride) {
    _tile_zero(t);
    amx_hold(t);
    for (int r = 0; r < amx.config.rows[t]; r++)
        memcpy(amx.row[t][r], (const char *)base + r * stride, amx.config.bytes[t]);
}

static inline void _tile_stored(int t, void *base, ptrdiff_t stride) {
    amx_insist_tile(t);
    for (int r = 0; r < amx.config.rows[t]; r++) memcpy((char *)base + r * stride, amx.row[t][r], amx.config.bytes[t]);
}

/* Denormals are 0, before and after. */
static inline float amx_flush(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float amx_widen(const unsigned char *bf16) {
    uint16_t half;
    memcpy(&half, bf16, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return amx_flush(x);
}

/* By columns and in vectors, since most of the time of the tests of these kernels is spent here; clang takes them at -O2. */
enum { TILE_COLUMNS = 16, TILE_PAIRS = 16 };
#ifdef __clang__
#define TILE_VECTORS
#else
#define TILE_VECTORS __attribute__((optimize("O3")))
#endif

/* part[n] = a b[n] + part[n], fused: a product of two bf16 is exact in double. */
TILE_VECTORS static inline void amx_fused_row(float a, const float *restrict b, float *restrict part) {
    for (int n = 0; n < TILE_COLUMNS; n++) part[n] = (float)((double)a * (double)b[n] + (double)part[n]);
    for (int n = 0; n < TILE_COLUMNS; n++) part[n] = amx_flush(part[n]);
}

/* sum[m][n] += the sum over even k + the sum over odd k, each one fused multiply-add after the other */
static inline void _tile_dpbf16ps(int sum, int a, int b) {
    amx_insist_tile(sum), amx_insist_tile(a), amx_insist_tile(b);
    amx_insist(amx.held[a] && amx.held[b], "an operand that was not loaded");
    amx_hold(sum);
    const int pairs = amx.config.bytes[a] / 4;
    amx_insist(amx.config.rows[sum] == amx.config.rows[a] && amx.config.rows[b] == pairs &&
                   amx.config.bytes[b] == amx.config.bytes[sum],
               "tiles of a product that do not fit");
    float wide[2 * TILE_PAIRS][TILE_COLUMNS]; /* b */
    for (int k = 0; k < 2 * pairs; k++)
        for (int n = 0; n < TILE_COLUMNS; n++) wide[k][n] = amx_widen(amx.row[b][k / 2] + 4 * n + 2 * (k & 1));
    for (int m = 0; m < amx.config.rows[sum]; m++) {
        float part[2][TILE_COLUMNS] = {{0}}, total[TILE_COLUMNS];
        for (int k = 0; k < 2 * pairs; k++) amx_fused_row(amx_widen(amx.row[a][m] + 2 * k), wide[k], part[k & 1]);
        memcpy(total, amx.row[sum][m], sizeof total);
        for (int n = 0; n < TILE_COLUMNS; n++) total[n] = amx_flush(total[n] + amx_flush(part[0][n] + part[1][n]));
        memcpy(amx.row[sum][m], total, amx.config.bytes[sum]);
    }
}

#endif
