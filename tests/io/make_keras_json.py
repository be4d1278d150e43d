"""Writes tests/data/keras/*.json: what Keras 3 itself says of some Sequential models.

    KERAS_BACKEND=torch python tests/io/make_keras_json.py tests/data/keras
"""
import pathlib
import sys

import keras
from keras import Input, Sequential, initializers, layers

MODELS = {
    "language_model": Sequential(
        [
            Input((None,), dtype="int32", name="tokens"),
            layers.Embedding(50, 8),
            layers.LSTM(6, return_sequences=True),
            layers.Dropout(0.25),
            layers.LSTM(6, return_sequences=True, unit_forget_bias=False, recurrent_dropout=0.1),
            layers.TimeDistributed(layers.Dense(50, activation="linear")),
        ]
    ),
    "bidirectional": Sequential(
        [
            Input((None, 3)),
            layers.Bidirectional(layers.LSTM(4, return_sequences=True), merge_mode="concat"),
            layers.Bidirectional(layers.GRU(4, return_sequences=True), merge_mode="sum"),
            layers.Bidirectional(layers.SimpleRNN(4, activation="relu", use_bias=False), merge_mode="ave"),
            layers.Dense(1, activation="sigmoid", use_bias=False),
        ]
    ),
    "stateful_gru": Sequential(
        [
            Input(batch_shape=(4, 7, 2)),
            layers.GRU(5, stateful=True, reset_after=False, return_sequences=True, recurrent_activation="hard_sigmoid"),
            layers.GRU(5, go_backwards=True, kernel_initializer=initializers.RandomUniform(-0.1, 0.1),
                       recurrent_initializer=initializers.Orthogonal(gain=0.5), bias_initializer="ones"),
            layers.Dense(2, kernel_initializer=initializers.TruncatedNormal(stddev=0.3), bias_initializer=initializers.Constant(0.125)),
        ]
    ),
    "embedding_first": Sequential([layers.Embedding(20, 4, embeddings_initializer="he_normal"), layers.LSTM(3), layers.Dense(2)]),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in MODELS.items():
        (folder / f"{name}.json").write_text(model.to_json(separators=(",", ":")) + "\n")
    x = Input((None, 3))
    functional = keras.Model(x, layers.LSTM(4)(x))
    (folder / "functional.json").write_text(functional.to_json(separators=(",", ":")) + "\n")


main()
