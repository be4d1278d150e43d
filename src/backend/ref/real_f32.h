/* Types of the *_body.h files, which are included once after real_f32.h and once after real_f64.h: REAL is the type,
 * NAME(lstm_forward) the function's name (lstm_forward_f32), M(tanh) the libm function. No guard: included again on purpose. */
#undef REAL
#undef NAME
#undef M
#define REAL float
#define NAME(name) name##_f32
#define M(function) function##f
