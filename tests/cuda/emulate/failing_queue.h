/* What a host side that is run by itself asks of its queue: the GPU that the test invents, and whether anything was wrong. Included after
 * `world`, with `caps` and `wrong`, and complain(), under the names that the test has given these functions. */
extern "C" {
const sli_caps *sli_cuda_caps_of(const sli_queue *) {
    return &world.caps;
}
bool sli_cuda_failed(const sli_queue *) {
    return !world.wrong.empty();
}
void sli_cuda_fail(sli_queue *, sl_status, const char *format, ...) {
    complain(format);
}
void sli_cuda_phase(sli_queue *, sli_phase) {}
}
