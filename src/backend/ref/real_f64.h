/* See real_f32.h. */
#undef REAL
#undef NAME
#undef M
#define REAL double
#define NAME(name) name##_f64
#define M(function) function
