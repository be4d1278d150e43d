/* The templated C++ kernels that stream_compare times beside Sluice: one LSTM or GRU, one input. */
#ifndef STREAM_PEER_H
#define STREAM_PEER_H

#ifdef __cplusplus
class stream_peer {
  public:
    virtual ~stream_peer() = default;
    virtual const float *step(const float *x) = 0;
};
extern "C" {
#else
typedef struct stream_peer stream_peer;
#endif

/* Weights as in Sluice's model files: [G*H][1], [G*H][H], [G*H], GRU: n's recurrent bias [H]. NULL: not a size it was compiled for. */
stream_peer *stream_peer_new(int gru, int units, const float *kernel, const float *recurrent, const float *bias,
                             const float *state_bias);
const float *stream_peer_step(stream_peer *peer, const float *x);
void stream_peer_free(stream_peer *peer);

#ifdef __cplusplus
}
#endif

#endif
