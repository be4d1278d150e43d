/* Of wide steps (kernels/step_wide.cu), for tests that have none: problems for which sli_step_wide_of says none. */
void sli_step_wide_pack(const step_way *, const sli_step_wide *, char *, bool) {}
void sli_step_wide_begin(const step_way *, const void *) {}
step_wide_v sli_step_wide_place(const step_way *) {
    return {};
}
step_sums sli_step_wide_multiply(const step_way *, float *, int64_t, const char *, bool) {
    return {};
}
void sli_step_run_forward(step_way *, step_forward_run *, int) {}
step_sums sli_step_run_backward(step_way *, step_backward_run *, int, bool) {
    return {};
}
