/* The persistent recurrence: constants that follow from a configuration C, as persist_geometry.h defines them. */
#ifndef SLI_CUDA_PERSIST_SIZES_CUH
#define SLI_CUDA_PERSIST_SIZES_CUH

#include "backend/cuda/kernels/persist_scales.cuh"

#ifndef PERSIST_SHARED
#define PERSIST_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#endif

enum persist_math { PERSIST_F32, PERSIST_TF32, PERSIST_BF16, PERSIST_F16, PERSIST_F32X3 };
enum persist_gather { PERSIST_LOCAL, PERSIST_CLUSTER, PERSIST_GRID };
/* Of shared memory's barriers, but in turns: arrivals of v, of sums; [half][buffer]. Then those of the ring. */
enum { PERSIST_BARRIERS_V = 0, PERSIST_BARRIERS_SUMS = 4, PERSIST_BARRIERS_RING = 8 };

/* With reset before the product a step multiplies parts of the weights (persist_geometry.h): forward of r, of z, of n, backward of r and z, which has
 * the first one's number, and of n. Without it there is one, and so it is for all that is not about a product; memory that parts have in turn is as large
 * as the first one's. */
enum persist_part { PERSIST_RESET, PERSIST_UPDATE, PERSIST_NEW };
template <class C, int PART = PERSIST_RESET> struct persist_sizes : C {
    typedef C configuration;
    typedef persist_sizes<C> whole;
    static constexpr bool narrow = C::math == PERSIST_BF16 || C::math == PERSIST_F16;
    static constexpr int operand = narrow ? 2 : 4;
    /* In memory; tf32 that is multiplied in 16 bits has floats there. */
    static constexpr bool stores_narrow = narrow && !C::scaled;
    static constexpr int stored = stores_narrow ? 2 : 4;
    static constexpr int tile_rows = C::math == PERSIST_F32 ? 32 : 16;
    static constexpr int tile_bytes = C::math == PERSIST_F32 ? 16 : 32; /* of a row of v */
    static constexpr int here = C::few > 0 && C::math == PERSIST_F32 ? (int)C::few : 8; /* of 8 rows those that are multiplied */
    static constexpr int columns = C::math == PERSIST_F32 ? here : 4; /* accumulators of a lane: of a tile and 8 rows */
    static constexpr int tile_k = C::math == PERSIST_F32 ? 4 : narrow ? 16 : 8;
    static constexpr int tile_size = C::tight ? 320 : 512; /* bytes of weights; tight: half of two tiles of k */
    static constexpr int all_tiles_m = C::tiles_m, all_tiles_k = C::tiles_k;
    static constexpr int part = PART, k_of_new = tile_k * C::warps_k;
    static constexpr bool rows_apart = C::before && !C::backward;
    static constexpr int tiles_m = rows_apart ? all_tiles_m / 3 : all_tiles_m, first_m = rows_apart ? PART * tiles_m : 0;
    static constexpr int new_k = C::before && C::backward ? (C::spread * C::units + k_of_new - 1) / k_of_new : 0;
    static constexpr int tiles_k = PART == PERSIST_NEW && new_k > 0 ? new_k : all_tiles_k - new_k;
    static constexpr int first_k = PART == PERSIST_NEW && new_k > 0 ? all_tiles_k - new_k : 0;
    /* Sums of a cell: of a GRU in a wave n has two, of its own h and of the layer below, and as many gradients. */
    static constexpr int sums_of_cell = C::wave > 0 && C::gates == 3 ? 4 : (int)C::gates;
    static constexpr int most_vk = C::before ? 2 : sums_of_cell;
    static constexpr int multiplied = !C::before ? sums_of_cell : rows_apart || PART == PERSIST_NEW ? 1 : 2;
    static constexpr int vk = C::backward ? multiplied : 1, ym = C::backward ? 1 : multiplied;
    static constexpr int own = C::units * ym; /* values of y that a CTA owns */
    static constexpr int m = C::reduce * own, k = C::spread * C::units * vk;
    static constexpr int warps = C::warps_m * C::warps_k, threads = 32 * warps;
    static constexpr int places = 8 * C::tiles_n; /* for rows, in v and in sums */
    static constexpr int rows = C::few > 0 ? (int)C::few : places; /* of the batch in a half */
    /* Of 8 sums of a value, what goes to its owner; and room for them in the CTA's own shared memory: no more, so that lanes of
     * neighbouring units read neighbouring banks. */
    static constexpr int sent = C::few > 0 ? 4 : 8, width = C::math != PERSIST_F32 ? 8 : C::reduce > 1 ? sent : here;
    static constexpr int m_tiled = C::warps_m * tiles_m * tile_rows;
    static constexpr int v_bytes = C::warps_k * tiles_k * tile_bytes;
    /* v lies in pieces of 16 bytes of k by 8 rows, [rows / 8][pieces][8][16]: what matrix instructions read is contiguous, and so
     * is what a CTA sends. The exchange has as many pieces as k fills. */
    static constexpr int v_pieces = v_bytes / 16, own_pieces = (k * operand + 15) / 16;
    static constexpr int exchange_pieces =
        C::couriers ? v_pieces : own_pieces; /* in many turns slots are brought as they are */
    /* Beside the warps that compute: those that bring v and tell others of it, where slices go in many turns. */
    static constexpr int couriers = C::couriers;
    /* Who computes cells: warps of their own, `apart`, or those that multiply. */
    static constexpr int cell_warps = C::apart > 0 ? (int)C::apart : warps, cell_threads = 32 * cell_warps;
    static constexpr int all_threads = threads + 32 * (C::apart + couriers);
    /* Others write the next while it is read; z's is read while n's comes. */
    static constexpr int v_buffers = C::gather == PERSIST_GRID ? 1 : C::gather == PERSIST_CLUSTER && rows_apart ? 3 : 2;
    static constexpr int partials = rows_apart ? 2 : 1; /* z's sums stay, too */
    /* In many turns v comes in `chunks` along k into a ring of `slots`: [warps_k][rows / 8][pieces of the chunk][8][16]; in the
     * exchange one lies behind the other. */
    static constexpr int chunk_tiles = tiles_k / C::chunks, slot_bytes = places * (v_bytes / C::chunks);
    static constexpr int part_bytes = chunk_tiles * tile_bytes * 8;           /* of a warp's k and 8 rows */
    static constexpr int v_stride_n = couriers ? part_bytes : v_pieces * 128; /* from 8 rows to the next */
    static constexpr int v_stride_k = couriers ? C::tiles_n * part_bytes : tiles_k * tile_bytes * 8; /* of warps_k */
    static constexpr int v_all_bytes = couriers ? C::slots * slot_bytes : C::halves * v_buffers * places * v_bytes;
    static constexpr int sum_buffers = !couriers  ? 2 * C::halves /* [half][2] */
                                       : C::meets ? (int)PERSIST_MEETING
                                                  : (int)PERSIST_ARRIVING;
    /* A warp has cells of as many neighbouring units as there are: what it reads and writes of memory are lines, not pieces.
     * Forward through a cluster it sends 16 bytes of them. */
    static constexpr bool sends = C::gather == PERSIST_CLUSTER && !C::backward;
    static constexpr int most_units = C::gather == PERSIST_GRID && C::units % 16 == 0 ? 16
                                      : C::units % 8 == 0 && (narrow || !sends)       ? 8
                                                                                      : 4;
    static constexpr bool few_exact = C::few > 0 && C::math == PERSIST_F32;
    static constexpr int cell_units = few_exact && C::few == 1 && C::units % 32 == 0       ? 32
                                      : few_exact && C::few <= 2 && C::units % 16 == 0     ? 16
                                      : C::few > 0 && most_units == 4 && C::units % 8 == 0 ? 8
                                                                                           : most_units;
    /* FFMA of few rows, not over the grid: where half of the warps and more would have no cells, each has fewer rows, a cell is the first lanes', and all send
     * what the warp has (256 units in tf32, one row: a tenth less). On tensor cores it takes longer: twice the loads of sums. */
    static constexpr int cell_columns = C::units / cell_units, lanes_rows = 32 / cell_units;
    static constexpr int whole_tiles = cell_columns * (rows > lanes_rows ? rows / lanes_rows : 1);
    static constexpr int most_split = !few_exact || C::gather == PERSIST_GRID ? 1 : lanes_rows;
    static constexpr int cell_split = most_split >= 4 && 4 * whole_tiles <= cell_warps   ? 4
                                      : most_split >= 2 && 2 * whole_tiles <= cell_warps ? 2
                                                                                         : 1;
    static constexpr int cell_rows = lanes_rows / cell_split, cell_lanes = 32 / cell_split;
    static constexpr int cells_high = rows > cell_rows ? rows / cell_rows : 1, cell_tiles = cell_columns * cells_high;
    static constexpr int given = cells_high * cell_rows; /* rows of v that cells give: the last may be of none */
    static constexpr int cells = (cell_tiles + cell_warps - 1) / cell_warps;
    /* Warps that have no cells have code of their own: else each step branches around them, some 80 cycles of branches and of meeting again. Over the grid
     * it is 5% less to 4% more. */
    static constexpr bool kinds = C::gather != PERSIST_GRID && cell_tiles < cell_warps;
    static constexpr bool one_unit = cell_warps % cell_columns == 0; /* the cells of a lane are of one unit */
    static constexpr int exchange_bytes = exchange_pieces * 16 * places;
    /* Over the grid v itself tells that it has come, where each lane takes few pieces of it: persist_exchange.cuh. The first warp,
     * which waits for a fence, takes none. */
    static constexpr int fencing = warps > 1 ? 1 : 0, takers = threads - 32 * fencing;
    static constexpr int taken = (exchange_pieces * rows + takers - 1) / takers;
    static constexpr int most_pieces = (C::spread * C::units * (C::backward ? most_vk : 1) * operand + 15) / 16;
    static constexpr int most_taken = (most_pieces * rows + takers - 1) / takers;
    static constexpr bool words_tell = C::gather == PERSIST_GRID && couriers == 0 && most_taken <= PERSIST_TAKEN;
    static constexpr int exchange_buffers = words_tell ? (int)PERSIST_EXCHANGE : 2;
    static constexpr int own_words = C::units * vk * operand / 4; /* of a row, what a CTA gives */
    static constexpr int cluster = C::gather == PERSIST_CLUSTER ? C::spread : C::meets ? C::share : C::reduce * C::share;
    static constexpr int meeting_bytes = C::reduce * C::tiles_n * own * 32; /* of sums, that come to an owner in a product */
    static constexpr int group = C::reduce * C::spread;
    static constexpr int addends =
        C::reduce > 1 ? C::reduce : C::warps_k;                      /* partial sums of a value of y that cells add */
    static constexpr bool direct = C::reduce > 1 && C::warps_k == 1; /* accumulators go to their owners as they are */
    static constexpr int streamed = all_tiles_k - C::in_registers - C::in_shared;
    /* They come by bulk copies where they are more than L2 keeps, so that what goes first can be said; else where copies are large and
     * many under way (both thresholds lie between what was measured) and the launch keeps no gates. GRU of 2816 units, 32 rows, bf16:
     * by bulk copies 1.9 us a step less than by those of 16 bytes in inference, 3 us more in training. In turns v would wait behind them.
     * bench/results/in_turns_h200_2026-11-22.txt, near_h200_2026-11-22.txt. */
    static constexpr bool keeps = C::form < 0 || (C::form & PERSIST_HAS_GATES) != 0;
    static constexpr int pair_bytes = 2 * tiles_m * tile_size;
    static constexpr bool many = C::math != PERSIST_F32 && couriers == 0 && !keeps && pair_bytes >= PTX_BRING_LEAST &&
                                 pair_bytes * warps * C::ring >= PTX_BRING_AHEAD;
    static constexpr bool far =
        (int64_t)streamed * all_tiles_m * tile_size * warps * group * C::directions > PTX_L2_KEEPS;
    static constexpr bool brings = PTX_BRINGS && streamed > 0 && (many || far);
    /* Pairs of tiles of k that stream; the first product's first one. Forward each part has its own rows of all of them, one part's behind the
     * other's. */
    static constexpr int kept = C::in_registers + C::in_shared, pairs = (streamed + 1) / 2;
    static constexpr int in_step = rows_apart ? 3 * pairs : pairs, of_part = rows_apart ? PART * pairs : 0;
    static constexpr int first_pair = first_k > kept ? (first_k - kept) / 2 : 0;
    /* The first of the ring's barriers, behind all others: [warp][slot]. */
    static constexpr int ring_barriers =
        couriers ? 2 * (C::slots + C::halves) + PERSIST_ARRIVING + PERSIST_APART_BARRIERS : (int)PERSIST_BARRIERS_RING;
    /* Sums lie where v did: all of that is filled anew, and nobody fills it before all have read them. */
    static constexpr bool over = C::gather == PERSIST_GRID && couriers == 0 && C::halves == 1 && streamed > 0 &&
                                 v_bytes == k * operand && !words_tell && !direct && !C::before;
    /* Four warps multiply together, one matrix instruction: wgmma. */
    static constexpr bool together = PTX_TOGETHER && couriers > 0 && C::warps_m % 4 == 0 && streamed == 0 && !C::tight &&
                                     (narrow || C::math == PERSIST_TF32) && (C::tiles_n == 2 || C::tiles_n == 4);
    static_assert(m_tiled >= m && v_bytes >= k * operand, "the warps do not cover M");
    static_assert(C::gather != PERSIST_CLUSTER || C::reduce == 1, "gathers through a cluster or reduces in it");
    static_assert(C::gather != PERSIST_LOCAL || C::spread == 1, "local v is the CTA's own");
    static_assert(C::in_registers % 2 == 0 || C::in_registers == C::tiles_k, "tiles go by pairs");
    static_assert(first_k % 2 == 0, "tiles go by pairs");
    static_assert(!C::before || (C::gates == 3 && couriers == 0), "reset before: GRU, not in turns");
    static_assert(!C::before || streamed == 0 || C::halves == 1, "what streams, streams part by part in turn");
    static_assert(C::in_shared % 2 == 0 || streamed == 0, "tiles go by pairs");
    static_assert(couriers == 0 || C::gather == PERSIST_GRID, "turns are taken in a grid");
    static_assert(C::tiles_k % C::chunks == 0 && C::spread % C::share == 0, "chunks and shares are equal");
    static_assert(!C::meets || (couriers > 0 && C::reduce > 1), "couriers bring the sums that meet in memory");
    static_assert(C::chunks == 1 || chunk_tiles % 2 == 0, "tiles go by pairs");
    static_assert((C::ring > 0) == (streamed > 0) && C::ring <= (streamed + 1) / 2,
                  "what streams has a ring, once around at most");
    static_assert(C::apart == 0 || (C::apart == 4 && couriers > 0), "in turns four warps may have the cells");
    static_assert(couriers == 0 || slot_bytes % (16 * C::share) == 0, "16 bytes are brought at a time");
    static_assert(exchange_pieces <= v_pieces && k * operand % 4 == 0, "v has room for the exchange");
    static_assert(C::gather != PERSIST_CLUSTER || C::units * operand % 16 == 0, "16 bytes are sent at a time");
    static_assert(C::wave == 0 || (!C::before && couriers == 0 && C::gather != PERSIST_GRID && C::directions == 1), "waves go through clusters");
    static_assert(C::units % 4 == 0, "pairs of units share words");
    static_assert(!C::tight || (C::math == PERSIST_TF32 && !C::before && C::tiles_k % 2 == 0 && C::in_registers % 2 == 0 && C::in_shared % 2 == 0),
                  "five words hold a pair of tiles");
    static_assert(!C::scaled || (C::math == PERSIST_F16 && !C::backward), "operands of f16 are scaled, forward");
    static_assert(C::inputs == 0 || (!C::backward && couriers == 0 && streamed == 0), "the input side is forward's, not in turns, nor beside bulk copies");
    static_assert(C::few == 0 || ((few_exact || (rows == 4 && C::gather != PERSIST_GRID)) && rows <= 4 && C::tiles_n * C::halves == 1 && couriers == 0),
                  "few rows are of FFMA, or half of a tile's, not over the grid");
};

/* With reset before the product, the parts of z and n. */
template <class S> using persist_update = persist_sizes<typename S::configuration, PERSIST_UPDATE>;
template <class S> using persist_new = persist_sizes<typename S::configuration, PERSIST_NEW>;

/* A constant of a kernel that is compiled for its layer, or, where that is -1, given by the launch. What a step would load from constant memory lies in
 * its way: after a branch ptxas loads it where it is needed (bench/results/paths_h200_2026-11-24.txt). */
PERSIST_FN int persist_constant(int constant, int given) {
    return constant >= 0 ? constant : given;
}

/* Units of the layer and strides of rows: with constants the addresses of a cell's gates are one and what lies between them. Not where weights
 * stream outside of turns, which has no register to spare: with them backward of GRU of 2816 units, 32 rows, spilled 40 bytes, and its training took
 * 7.3 ms, not 6.7 (bench/results/overlap_h200_2026-11-24.txt). */
template <class S> PERSIST_FN int persist_stride(int constant, int given) {
    return S::streamed > 0 && S::couriers == 0 ? given : persist_constant(constant, given);
}
template <class S> PERSIST_FN int persist_units(const persist_args &a) {
    return persist_stride<S>(S::H, a.H);
}
template <class S> PERSIST_FN int persist_us(const persist_args &a) {
    return persist_stride<S>(S::us, a.us);
}
template <class S> PERSIST_FN int persist_hs(const persist_args &a) {
    return persist_stride<S>(S::hs, a.hs);
}
template <class S> PERSIST_FN int persist_zs(const persist_args &a) {
    return persist_stride<S>(S::zs, a.zs);
}

/* All warps that multiply. __syncthreads is for warps that are at the same place in the program. */
template <class S> PERSIST_FN void persist_sync() {
    if constexpr (S::couriers > 0 || S::kinds)
        ptx_barrier(1, S::threads);
    else
        __syncthreads();
}

template <class S> PERSIST_FN bool persist_has(const persist_args &a, int bit) {
    return ((S::form >= 0 ? (int)S::form : a.form) & bit) != 0;
}

/* Whether x, y and dy have 16 bits. */
template <class S> static constexpr bool persist_narrow_io = S::form >= 0 && (S::form & PERSIST_HAS_NARROW_IO) != 0;

/* Of a warp, where its code is that of warps that have cells, or of those that have none. */
enum persist_kind_of_warp { PERSIST_ANY_WARP, PERSIST_WITH_CELLS, PERSIST_WITHOUT_CELLS };
/* Who a thread is. */
typedef struct persist_self {
    int p, q, group, direction, thread, warp, lane;
    persist_kind_of_warp kind; /* a constant to the compiler */
    unsigned char *shared;
    uint32_t at; /* address of `shared` */
    float scale, unscale; /* scaled: of v, of sums */
} persist_self;

template <class S> PERSIST_FN persist_self persist_find(const persist_args &a, unsigned char *shared) {
    persist_self self;
    int left = (int)blockIdx.x;
    const int sharer = left % S::share; /* of those of a cluster that gather the same v */
    left /= S::share;
    self.p = left % S::reduce;
    left /= S::reduce;
    self.q = left % (S::spread / S::share) * S::share + sharer;
    left /= S::spread / S::share;
    self.group = left % a.groups;
    self.direction = left / a.groups;
    self.thread = ptx_thread();
    self.warp = self.thread / 32;
    self.lane = self.thread % 32;
    self.kind = PERSIST_ANY_WARP;
    self.scale = self.unscale = 1.0f;
    self.shared = shared;
    self.at = ptx_shared(shared);
    /* From a shuffle, or ptxas finds it anew wherever a step needs it (S2UR, some thirty cycles each time). Backward through a cluster and in turns alone: other steps
     * became up to 8% longer by it. */
    if constexpr ((S::backward && S::gather == PERSIST_LOCAL) || S::couriers > 0) {
        self.at = ptx_uniform(self.at);
        self.shared = ptx_pointer(shared, self.at);
    }
    return self;
}

/* With the scales of a launch; the largest weights were asked for before the weights, and are there with them. */
template <class S> PERSIST_FN persist_self persist_scaled(const persist_args &a, persist_self self, const float4 &largest) {
    if constexpr (S::scaled) {
        self.scale = persist_scale_of_v(a.bound);
        self.unscale = persist_inverse(self.scale * persist_scale(persist_largest(largest)));
    }
    return self;
}

/* Steps of a half that are not beyond the end of all its rows: [first, end). */
typedef struct persist_range {
    int first, end;
} persist_range;

PERSIST_FN bool persist_in(const persist_range &range, int s) {
    return s >= range.first && s < range.end;
}

/* Steps whose v is multiplied. Backward not the last one's, where nobody wants what that gives: d h of the entering state. With
 * reset before the product n's part of each is, the other one where persist_gives_on. */
template <class S> PERSIST_FN bool persist_gives_on(const persist_args &a, const persist_way &way, int s) {
    return persist_has<S>(a, PERSIST_HAS_DP) || s + 1 < way.steps;
}
template <class S> PERSIST_FN int persist_multiplied(const persist_args &a, const persist_way &way) {
    return S::backward && !S::before && !persist_has<S>(a, PERSIST_HAS_DP) ? way.steps - 1 : way.steps;
}

template <class S>
PERSIST_FN persist_range persist_range_of(const persist_args &a, const persist_way &way, const persist_self &self,
                                          int half) {
    const int steps = persist_multiplied<S>(a, way);
    persist_range range = {0, steps};
    if (!persist_has<S>(a, PERSIST_HAS_LENGTHS)) return range;
    const int first_row = (self.group * S::halves + half) * S::rows;
    int64_t longest = 0;
    for (int r = first_row; r < first_row + S::rows && r < a.B; r++)
        longest = way.lengths[r] > longest ? way.lengths[r] : longest;
    if (way.time_step > 0) {
        const int64_t end = longest - way.time;
        range.end = end < 0 ? 0 : end < steps ? (int)end : steps;
    } else {
        const int64_t first = way.time - longest + 1;
        range.first = first < 0 ? 0 : first < steps ? (int)first : steps;
    }
    return range;
}

/* A unit of a row of the batch: what a lane computes of warp cell `index`. */
typedef struct persist_place {
    bool here;             /* the warp has this cell */
    bool row_there;        /* and the row exists */
    bool there;            /* and the unit, too */
    int unit, row;         /* of the layer, of the batch */
    int own_unit, own_row; /* of the CTA, of the half */
} persist_place;

template <class S>
PERSIST_FN persist_place persist_place_of(const persist_args &a, const persist_self &self, int half, int index) {
    persist_place place;
    const int tile = self.warp + index * S::cell_warps, lane = self.lane % S::cell_lanes;
    place.here = self.kind == PERSIST_WITH_CELLS || (self.kind == PERSIST_ANY_WARP && (S::cell_tiles % S::cell_warps == 0 || tile < S::cell_tiles));
    place.own_unit = tile % S::cell_columns * S::cell_units + lane % S::cell_units;
    place.own_row = tile / S::cell_columns * S::cell_rows + lane / S::cell_units;
    if constexpr (S::one_unit) { /* rows are equally far apart: few addresses to keep */
        place.own_unit = self.warp % S::cell_columns * S::cell_units + lane % S::cell_units;
        place.own_row = self.warp / S::cell_columns * S::cell_rows + lane / S::cell_units +
                        index * (S::cell_warps / S::cell_columns * S::cell_rows);
    }
    place.unit = (self.q * S::reduce + self.p) * S::units + place.own_unit;
    place.row = (self.group * S::halves + half) * S::rows + place.own_row;
    place.row_there = place.here && place.row < a.B;
    if constexpr (S::given > S::rows) place.row_there = place.row_there && place.own_row < S::rows;
    if constexpr (S::cell_split > 1) place.row_there = place.row_there && self.lane < S::cell_lanes;
    place.there = place.row_there && place.unit < persist_units<S>(a);
    return place;
}

/* The bits of x as an operand: in the low half where they are 16. */
template <class S> PERSIST_FN uint32_t persist_bits_of(float x) {
    if (S::math == PERSIST_BF16) return ptx_pack_bf16(x, 0.0f);
    if (S::math == PERSIST_F16) return ptx_pack_f16(x, 0.0f);
    if (S::math == PERSIST_TF32) return ptx_tf32(__float_as_uint(x));
    return __float_as_uint(x);
}

/* Of v. */
template <class S> PERSIST_FN uint32_t persist_operand(const persist_self &self, float x) {
    return S::scaled ? persist_scaled_bits(x, self.scale) : persist_bits_of<S>(x);
}

/* Of states that were given, or that a masked step carries. */
template <class S> PERSIST_FN uint32_t persist_given_operand(const persist_self &self, float x) {
    return S::scaled ? persist_scaled_or_nan(x, self.scale) : persist_bits_of<S>(x);
}

/* Of what a cell gives, forward. */
template <class S> PERSIST_FN uint32_t persist_cell_operand(const persist_args &a, const persist_self &self, float x) {
    if constexpr (S::scaled)
        if (persist_has<S>(a, PERSIST_HAS_FLAGS)) return persist_given_operand<S>(self, x);
    return persist_operand<S>(self, x);
}

/* The operand that step 0 enters from. */
template <class S> PERSIST_FN uint32_t persist_entering(const persist_args &a, const persist_way &way, const persist_self &self, int row, int unit) {
    if (way.h_enters) return persist_given_operand<S>(self, way.h_enters[(int64_t)row * persist_units<S>(a) + unit]);
    const int64_t at = (int64_t)row * persist_hs<S>(a) + unit;
    if (S::stores_narrow) return ((const uint16_t *)way.operand_from)[at];
    return persist_given_operand<S>(self, ((const float *)way.operand_from)[at]);
}

template <bool narrow> struct persist_bits { typedef float type; };
template <> struct persist_bits<true> { typedef uint16_t type; };

/* to[at] = x as operand in memory: tf32 products round what they read. */
template <class S> PERSIST_FN void persist_store_operand(void *to, uint32_t at, float x) {
    if (S::stores_narrow)
        ((uint16_t *)to)[at] = (uint16_t)persist_bits_of<S>(x);
    else
        ((float *)to)[at] = x;
}

/* Where byte `byte` of k of a row lies in v of `pieces` pieces. */
PERSIST_FN int persist_v_at(int pieces, int row, int byte) {
    return ((row / 8 * pieces + byte / 16) * 8 + row % 8) * 16 + byte % 16;
}

/* The same in the exchange of many turns: chunk by chunk as slots have it. */
template <class S> PERSIST_FN int persist_exchange_at(int row, int byte) {
    if constexpr (S::couriers == 0) return persist_v_at(S::exchange_pieces, row, byte);
    const int wk = byte / (S::chunks * S::part_bytes / 8), within = byte % (S::chunks * S::part_bytes / 8);
    const int chunk = within / (S::part_bytes / 8), at = within % (S::part_bytes / 8);
    return ((chunk * S::warps_k + wk) * S::tiles_n + row / 8) * S::part_bytes + (at / 16 * 8 + row % 8) * 16 + at % 16;
}

/* to[at] = x of the lane's unit, as operand; behind the last unit's there are `behind` zeros: from lanes whose units the layer does not have, where there are as many,
 * or else from the last unit's, one after the other while its warp waits, which was a third of a step of GRU of 100 units. In 32 bits zeros are three at most, and over
 * the grid predicates of all lanes take longer (GRU of 650 units in tf32 2%; odd_sizes_h200_2026-11-27.txt). */
template <class S>
PERSIST_FN void persist_put_operand(const persist_args &a, const persist_place &place, void *to, uint32_t at, float x, int behind) {
    const bool lanes = (S::stores_narrow || S::gather != PERSIST_GRID) && S::group * S::units >= persist_units<S>(a) + behind;
    const int over = place.unit - persist_units<S>(a);
    if (place.row_there && over < (lanes ? behind : 0)) persist_store_operand<S>(to, at, over < 0 ? x : 0.0f);
    if (lanes || !place.row_there || over != -1) return;
#pragma unroll 1
    for (int j = 1; j <= behind; j++) persist_store_operand<S>(to, at + (uint32_t)j, 0.0f);
}

/* Tests: up to two microseconds that differ from CTA to CTA and step to step. Or, for compute-sanitizer's racecheck, the CTA's threads meet: it does
 * not count it as an order that all sums were read before v, which comes by st.async, could be whole. */
template <class S> PERSIST_FN void persist_delay(const persist_args &a, int s) {
    if (!persist_has<S>(a, PERSIST_HAS_DELAY)) return;
    if constexpr (S::form >= 0 && S::couriers == 0) { /* those that are built in ask at run time, and are to stay as they are */
        if (a.delay == PERSIST_DELAY_MEETS) {
            __syncthreads();
            return;
        }
    }
    uint32_t x = a.delay + 0x9E3779B9u * (blockIdx.x * 65537u + (uint32_t)s);
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    if (x & 1u) ptx_pause(x >> 21);
}

#endif
